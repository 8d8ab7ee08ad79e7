// Zero bubble: `zb_h1`, `zb_h2`, `zb_auto`, `zb_v` and `zb_ilp`. The backward is split; weight gradients fill idle
// time.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/orders/list_order.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/zero_bubble_search.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_h1_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_h1");
  return pipeline(problem, options, "zb_h1", zero_bubble_order(ranks, problem.micro_batches, 1), budgets);
}

constexpr auto zb_h1_options =
    options_of<LineOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option);

std::vector<PartitionOutcome> zb_h2_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_h2");
  return pipeline(problem, options, "zb_h2", zero_bubble_order(ranks, problem.micro_batches, 2), budgets);
}

constexpr auto zb_h2_options =
    options_of<LineOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option);

std::vector<PartitionOutcome> zb_auto_partition(const Problem& problem, const LimitedOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_auto");
  std::vector<std::uint32_t> rank_of(ranks);
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  return for_budgets(options, budgets, [&](const std::optional<Bytes>& budget) {
    Partition cut = cut_for(problem, options, "zb_auto", rank_of, true, budget);
    const PartCosts costs = part_costs(problem, cut);
    const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
    const std::optional<PipelineOrder> order =
        asked_order(options, costs, problem.micro_batches,
                    [&](const PartCosts& given) { return zero_bubble_search(given, problem.micro_batches, limits); });
    if (!order) {
      throw InputError(fmt::format("zb_auto: limit={} is too small for one micro-batch; the least is {}", options.limit,
                                   least_limit(costs, rank_of)));
    }
    return with_turns(std::move(cut), *order);
  });
}

constexpr auto zb_auto_options = options_of<LimitedOptions>(stages_option, joint_cut_option, shared_updates_option,
                                                            work_conserving_option, limit_option, orders_option);

std::vector<PartitionOutcome> zb_v_partition(const Problem& problem, const LimitedOptions& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_v", 2);
  const std::vector<std::uint32_t> rank_of = v_shape(ranks);
  const PartCosts costs = part_costs(problem, cut_for(problem, options, "zb_v", rank_of, true));
  const auto order_within = [&](double limit) {
    return v_shape_search(costs, problem.micro_batches, limits_of(costs, rank_of, limit));
  };
  const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
  const std::optional<PipelineOrder> order =
      asked_order(options, costs, problem.micro_batches,
                  [&](const PartCosts& given) { return v_shape_search(given, problem.micro_batches, limits); });
  if (!order) {
    double below = 0, enough = least_limit(costs, rank_of);  // for a micro-batch, and not always for the heuristic
    while (!order_within(enough)) {
      below = enough;
      enough = std::ceil(1.1e4 * enough) / 1e4;
    }
    while (below > 0 && enough - below > 1.5e-4) {
      const double middle = std::round(5e3 * (below + enough)) / 1e4;
      (order_within(middle) ? enough : below) = middle;
    }
    throw InputError(
        fmt::format("zb_v: limit={} is too small for one micro-batch; the least is {}", options.limit, enough));
  }
  return pipeline(problem, options, "zb_v", *order, budgets);
}

constexpr auto zb_v_options = options_of<LimitedOptions>(stages_option, cut_option, shared_updates_option,
                                                         work_conserving_option, limit_option, orders_option);

// The best order of a pipeline of one part a rank with split backwards, as an integer program for CBC.
// Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, appendix G; bounds of our own on every pass's end.

struct ProgramOrder {
  PipelineOrder order;
  double bound = 0;  ///< no order's longest rank is shorter, transfers being free to overtake each other
  MilpResult::End end = MilpResult::End::optimal;
  bool is_too_large = false;  ///< the program was not asked: more work than nodes can limit
};

/// Passes are numbered by rank, piece and micro-batch. Times are in units of the start's longest rank.
class OrderProgram {
 public:
  OrderProgram(const PartCosts& costs, std::uint32_t m, const PipelineOrder& start,
               std::span<const std::int64_t> limits)
      : costs_(costs), m_(m), start_(start), limits_(limits), unit_(time_order(costs, m, start).longest()) {
    first_begin_.push_back(0);
    for (std::size_t r = 1; r < ranks(); ++r) {
      first_begin_.push_back(first_begin_.back() + (costs.f[r - 1] + costs.sent[r - 1]) / unit_);
    }
    longest_ = program_.variable({.cost = 1, .lower = 0, .upper = 1});
    for (std::size_t r = 0; r < ranks(); ++r) add_ends(r);
    for (std::size_t r = 0; r < ranks(); ++r) {
      add_reads(r);
      add_choices(r);
      add_limit(r);
    }
  }

  ProgramOrder solve(const MilpLimits& milp_limits) const {
    // The root of the search alone takes longer than its nodes are worth: half a minute at 20,000.
    constexpr std::size_t most_nonzeros = 20'000;
    if (program_.nonzeros > most_nonzeros) return {start_, least_bound() * unit_, MilpResult::End::out_of_nodes, true};
    const MilpResult result = solve_milp(program_, start_values(), milp_limits);
    ProgramOrder made{start_, std::max(result.bound, least_bound()) * unit_, result.end, false};
    if (!result.values.empty()) {
      const PipelineOrder found = order_of(result.values);
      if (time_order(costs_, m_, found).longest() < unit_) made.order = found;
    }
    made.bound = std::min(made.bound, time_order(costs_, m_, made.order).longest());
    return made;
  }

 private:
  std::size_t ranks() const { return costs_.parts(); }
  std::size_t end_of(std::size_t r, std::uint32_t kind, std::size_t i) const { return 1 + (r * 3 + kind) * m_ + i; }

  double time(std::size_t r, std::uint32_t kind) const {
    return (kind == piece::forward ? costs_.f[r] : kind == piece::backward ? costs_.b[r] : costs_.w[r]) / unit_;
  }

  /// Work of the rank that is surely done when the pass ends, it included; and what surely is not begun.
  double work_until(std::size_t r, std::uint32_t kind, std::size_t i) const {
    double work = 0;
    for (std::uint32_t k = 0; k <= kind; ++k) work += time(r, k) * static_cast<double>(i + 1);
    return work;
  }
  double work_after(std::size_t r, std::uint32_t kind, std::size_t i) const {
    double work = 0;
    for (std::uint32_t k = kind; k < 3; ++k) work += time(r, k) * static_cast<double>(m_ - i - (k == kind ? 1 : 0));
    return work;
  }

  /// The rank begins when its first forward can; all ends within the start's time of that.
  void add_ends(std::size_t r) {
    for (std::uint32_t kind = 0; kind < 3; ++kind) {
      for (std::size_t i = 0; i < m_; ++i) {
        const double upper = first_begin_[r] + 1 - work_after(r, kind, i);
        const double lower = first_begin_[r] + work_until(r, kind, i);
        const bool is_first = kind == piece::forward && i == 0;
        const std::size_t end = program_.variable({.lower = lower, .upper = is_first ? lower : std::max(lower, upper)});
        EXPECTS(end == end_of(r, kind, i));
        program_.row({{longest_, 1}, {end, -1}}, work_after(r, kind, i) - first_begin_[r], unbounded);
      }
    }
  }

  /// `later` begins `after` the end of `earlier` or later.
  void add_before(std::size_t earlier, std::size_t later, double after) {
    program_.row({{later, 1}, {earlier, -1}}, after, unbounded);
  }

  void add_reads(std::size_t r) {
    for (std::size_t i = 0; i < m_; ++i) {
      for (std::uint32_t kind = 0; kind < 3; ++kind) {
        if (i > 0) add_before(end_of(r, kind, i - 1), end_of(r, kind, i), time(r, kind));
        if (kind > 0) add_before(end_of(r, kind - 1, i), end_of(r, kind, i), time(r, kind));
      }
      if (r == 0) continue;
      const double sent = costs_.sent[r - 1] / unit_;
      add_before(end_of(r - 1, piece::forward, i), end_of(r, piece::forward, i), sent + time(r, piece::forward));
      add_before(end_of(r, piece::backward, i), end_of(r - 1, piece::backward, i), sent + time(r - 1, piece::backward));
    }
  }

  /// Which of two passes comes first, of a later micro-batch's earlier piece and an earlier micro-batch's later one;
  /// what else could be asked follows.
  void add_choices(std::size_t r) {
    for (std::uint32_t kind = 0; kind < 2; ++kind) {
      for (std::uint32_t other = kind + 1; other < 3; ++other) {
        choices_.push_back({program_.variables.size(), r, kind, other});
        for (std::size_t i = 0; i < m_; ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            const std::size_t choice = program_.variable({.whole = true});  // 1: pass (kind, i) before (other, j)
            const std::size_t x = end_of(r, kind, i), y = end_of(r, other, j);
            add_if(choice, 1, x, y, time(r, other));
            add_if(choice, 0, y, x, time(r, kind));
            if (j > 0) program_.row({{choice, 1}, {choice - 1, -1}}, 0, unbounded);  // before j - 1: also before j
            if (i > j + 1) program_.row({{choice, -1}, {choice_of(r, kind, other, i - 1, j), 1}}, 0, unbounded);
          }
        }
      }
    }
  }

  /// `later` after `earlier` where the choice is `value`.
  void add_if(std::size_t choice, int value, std::size_t earlier, std::size_t later, double time) {
    const double slack = program_.variables[earlier].upper + time - program_.variables[later].lower;
    if (slack <= 0) return;
    if (value == 1) {
      program_.row({{later, 1}, {earlier, -1}, {choice, -slack}}, time - slack, unbounded);
    } else {
      program_.row({{later, 1}, {earlier, -1}, {choice, slack}}, time, unbounded);
    }
  }

  std::size_t choice_of(std::size_t r, std::uint32_t kind, std::uint32_t other, std::size_t i, std::size_t j) const {
    const auto of = std::ranges::find_if(
        choices_, [&](const Choices& c) { return c.rank == r && c.kind == kind && c.other == other; });
    return of->first + i * (i - 1) / 2 + j;
  }

  /// After each forward: what of the micro-batches before it has not been freed.
  void add_limit(std::size_t r) {
    const auto kept = static_cast<double>(costs_.kept[r]), waits = static_cast<double>(costs_.kept_for_weights[r]);
    const double scale = std::max(1.0, kept);
    for (std::size_t i = 0; i < m_; ++i) {
      LinearProgram::Terms terms;
      for (std::size_t j = 0; j < i; ++j) {
        terms.emplace_back(choice_of(r, piece::forward, piece::backward, i, j), (kept - waits) / scale);
        terms.emplace_back(choice_of(r, piece::forward, piece::weights, i, j), waits / scale);
      }
      program_.row(std::move(terms), -unbounded, (static_cast<double>(limits_[r]) - kept) / scale);
    }
  }

  std::vector<double> start_values() const {
    std::vector<double> values(program_.variables.size(), 0);
    for (const Choices& of : choices_) {
      std::vector<std::vector<std::size_t>> at(3, std::vector<std::size_t>(m_));  // place in the rank's order
      for (std::size_t k = 0; k < start_.turns[of.rank].size(); ++k) {
        const Turn& turn = start_.turns[of.rank][k];
        at[turn.piece][turn.micro_batch] = k;
      }
      for (std::size_t i = 0; i < m_; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          values[of.first + i * (i - 1) / 2 + j] = at[of.kind][i] < at[of.other][j] ? 1 : 0;
        }
      }
    }
    return values;
  }

  /// How many of the rank's other passes come before one says where it is.
  PipelineOrder order_of(const std::vector<double>& values) const {
    PipelineOrder order{start_.rank_of, std::vector<std::vector<Turn>>(ranks()), true};
    for (std::size_t r = 0; r < ranks(); ++r) {
      std::vector<std::pair<std::size_t, Turn>> placed;
      for (std::uint32_t kind = 0; kind < 3; ++kind) {
        for (std::uint32_t i = 0; i < m_; ++i) {
          std::size_t before = i;
          for (std::uint32_t other = 0; other < 3; ++other) {
            for (std::size_t j = 0; j < m_ && other != kind; ++j)
              before += is_before(values, r, other, j, kind, i) ? 1 : 0;
          }
          placed.emplace_back(before, Turn{id_at<PartId>(r), i, kind});
        }
      }
      std::ranges::sort(placed, {}, &std::pair<std::size_t, Turn>::first);
      for (const auto& [before, turn] : placed) order.turns[r].push_back(turn);
    }
    return order;
  }

  bool is_before(const std::vector<double>& values, std::size_t r, std::uint32_t a, std::size_t i, std::uint32_t b,
                 std::size_t j) const {
    if (a > b) return !is_before(values, r, b, j, a, i);
    return i <= j || values[choice_of(r, a, b, i, j)] > 0.5;
  }

  /// Work alone.
  double least_bound() const {
    double most = 0;
    for (std::size_t r = 0; r < ranks(); ++r) most = std::max(most, work_until(r, piece::weights, m_ - 1));
    return most;
  }

  struct Choices {
    std::size_t first, rank;
    std::uint32_t kind, other;
  };

  const PartCosts& costs_;
  std::uint32_t m_;
  const PipelineOrder& start_;
  std::span<const std::int64_t> limits_;
  double unit_;
  std::vector<double> first_begin_;  // by rank
  LinearProgram program_;
  std::size_t longest_ = 0;
  std::vector<Choices> choices_;
};

/// The order whose longest rank, from its first forward to its last step, is shortest; never longer than `start`'s,
/// which holds the limits: bytes that a rank keeps after a forward.
ProgramOrder program_order(const PartCosts& costs, std::uint32_t micro_batches, const PipelineOrder& start,
                           std::span<const std::int64_t> limits, const MilpLimits& milp_limits) {
  if (time_order(costs, micro_batches, start).longest() == 0) return {start};  // nothing takes time
  return OrderProgram(costs, micro_batches, start, limits).solve(milp_limits);
}

struct ZbIlpOptions : LimitedOptions {
  int nodes = 500;
};

std::string note_of(const ProgramOrder& made, double longest, int nodes) {
  const std::string found = fmt::format("the longest device takes {:.6g} s, no order less than {:.6g} s (gap {:.2f} %)",
                                        longest, made.bound, longest > 0 ? 100 * (longest / made.bound - 1) : 0);
  if (made.end == MilpResult::End::optimal) return found;
  if (made.is_too_large) return found + "; the integer program is too large to be asked";
  return found + (made.end == MilpResult::End::out_of_nodes
                      ? fmt::format("; the integer program stopped after {} nodes (nodes)", nodes)
                      : "; the integer program stopped at its limit of memory");
}

/// Of zb_auto's two orders (`orders_option`) the one whose longest device is shortest.
std::optional<PipelineOrder> shorter_start(const PartCosts& costs, std::uint32_t m,
                                           const std::vector<std::int64_t>& limits) {
  const auto search = [&](const PartCosts& given) { return zero_bubble_search(given, m, limits); };
  std::optional<PipelineOrder> best = shortest_for_any_network(costs, m, search), published = search(costs);
  const auto longest = [&](const PipelineOrder& order) { return time_order(costs, m, order).longest(); };
  return published && longest(*published) <= longest(*best) ? published : best;
}

std::vector<PartitionOutcome> zb_ilp_partition(const Problem& problem, const ZbIlpOptions& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_ilp"), m = problem.micro_batches;
  std::vector<std::uint32_t> rank_of(ranks);
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  return for_budgets(options, budgets, [&](const std::optional<Bytes>& budget) {
    Partition cut = cut_for(problem, options, "zb_ilp", rank_of, true, budget);
    const PartCosts costs = part_costs(problem, cut);
    const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
    std::optional<PipelineOrder> start = shorter_start(costs, m, limits);
    if (!start) start = list_order(costs, rank_of, m, true, limits, {});
    if (!start) {
      throw InputError(fmt::format("zb_ilp: limit={} is too small for one micro-batch; the least is {}", options.limit,
                                   least_limit(costs, rank_of)));
    }
    const MilpLimits work{.seconds = 86'400, .nodes = options.nodes};
    const ProgramOrder made = program_order(costs, m, *start, limits, work);
    const double longest = time_order(costs, m, made.order).longest();
    return with_turns(std::move(cut), made.order, note_of(made, longest, options.nodes));
  });
}

constexpr auto zb_ilp_options =
    options_of<ZbIlpOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option, limit_option,
                             option_of<&ZbIlpOptions::nodes>({
                                 .name = "nodes",
                                 .least = 0,
                                 .most = 1e9,
                                 .help = "how many branch-and-bound nodes the integer program may search",
                             }));

}  // namespace

// The strategy `zb_h1`: zero bubble by hand. The backward is split; weight gradients fill what would be idle time.
// Equation: with equal stages and free transfers the bubble is (p - 1)(F + B - W), and no stage keeps more than
// 1F1B's first one.
extern constinit const StrategyInfo zb_h1_strategy{
    .name = "zb_h1",
    .family = Family::pipelining,
    .summary =
        "1f1b whose weight gradients are computed later, when a stage would be idle; micro-batches in flight as in "
        "1f1b",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_h1_options,
    .kind = PartitionStrategy{.partition = by_options<zb_h1_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

// The strategy `zb_h2`: zero bubble by hand. The backward is split; weight gradients fill what would be idle time.
// Equation: with equal stages and free transfers the longest stage is idle for (p - 1)(F + B - 2W) at most, and the
// first stage keeps 2p - 1 micro-batches.
extern constinit const StrategyInfo zb_h2_strategy{
    .name = "zb_h2",
    .family = Family::pipelining,
    .summary = "as zb_h1 with twice the forwards to warm up: hardly any idle time, twice the activations",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_h2_options,
    .kind = PartitionStrategy{.partition = by_options<zb_h2_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

// The strategy `zb_auto`: zero bubble found by the heuristic of its paper within a limit of memory (ZB-1p, ZB-2p).
extern constinit const StrategyInfo zb_auto_strategy{
    .name = "zb_auto",
    .family = Family::pipelining,
    .summary = "zero bubble found by a heuristic within a limit of memory: ZB-1p at limit 1, ZB-2p at 2",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_auto_options,
    .kind = PartitionStrategy{.partition = by_options<zb_auto_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

// The strategy `zb_v`: two parts of the model a device, placed as a V, and zero bubble found by a heuristic within a
// limit of memory. With F = B = W, free transfers and m >= 2p there is none.
extern constinit const StrategyInfo zb_v_strategy{
    .name = "zb_v",
    .family = Family::pipelining,
    .summary = "zero bubble with two parts a device, down and up the devices as a V, within a limit of memory",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_v_options,
    .kind = PartitionStrategy{.partition = by_options<zb_v_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

// The strategy `zb_ilp`: zero bubble's best order, by an integer program that begins with zb_auto's.
extern constinit const StrategyInfo zb_ilp_strategy{
    .name = "zb_ilp",
    .family = Family::pipelining,
    .summary = "zero bubble's order of the shortest longest device within a limit of memory, by an integer program",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_ilp_options,
    .kind = PartitionStrategy{.partition = by_options<zb_ilp_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
