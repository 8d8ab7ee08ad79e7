#include "strategies/pipelining/star_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/cuts/asked_cut.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/order_times.h"

namespace plimsoll {
namespace {

constexpr double no_wait = -std::numeric_limits<double>::infinity();

/// Passes are numbered: the forwards of all parts, then their backwards.
class PeriodicSearch {
 public:
  PeriodicSearch(const PartCosts& costs, std::span<const std::uint32_t> rank_of,
                 std::span<const std::uint32_t> in_flight, double period)
      : parts_(costs.parts()), rank_of_(rank_of), period_(period), starts_(2 * costs.parts(), 0) {
    for (std::size_t g = 0; g < parts_; ++g) lasts_.push_back(costs.f[g]);
    for (std::size_t g = 0; g < parts_; ++g) lasts_.push_back(costs.b[g] + costs.w[g]);
    for (std::size_t g = 0; g < parts_; ++g) {
      const std::size_t forward = g, backward = parts_ + g;
      if (g + 1 < parts_) {
        after(forward, forward + 1, lasts_[forward] + costs.sent[g]);
        after(backward + 1, backward, lasts_[backward + 1] + costs.returned[g]);
      } else {
        after(forward, backward, lasts_[forward]);
      }
      after(backward, forward, lasts_[backward] - in_flight[g] * period);
    }
  }

  std::optional<PeriodicTimes> run() {
    if (!has_time() || !settle() || !decide()) return std::nullopt;
    const auto middle = starts_.begin() + static_cast<std::ptrdiff_t>(parts_);
    return PeriodicTimes{period_, {starts_.begin(), middle}, {middle, starts_.end()}};
  }

 private:
  /// `to` begins no sooner than `by` after `from` does.
  struct Wait {
    std::size_t from, to;
    double by;
  };

  /// That `to` of some micro-batch comes after `from`, or the other way round.
  struct Overlap {
    Wait first, second;
  };

  void after(std::size_t from, std::size_t to, double by) { add({from, to, by}); }

  /// Of waits between the same two only the longest counts, so that however deep the search is there are few. Returns
  /// what undo() takes back.
  Wait add(const Wait& wait) {
    const auto same =
        std::ranges::find_if(waits_, [&](const Wait& other) { return other.from == wait.from && other.to == wait.to; });
    if (same == waits_.end()) {
      waits_.push_back(wait);
      return {wait.from, wait.to, no_wait};
    }
    const Wait before = *same;
    same->by = std::max(same->by, wait.by);
    return before;
  }

  void undo(const Wait& before) {
    const auto same = std::ranges::find_if(
        waits_, [&](const Wait& other) { return other.from == before.from && other.to == before.to; });
    if (before.by == no_wait)
      waits_.erase(same);
    else
      same->by = before.by;
  }

  /// Whether each rank's passes fit a period one after the other.
  bool has_time() const {
    std::vector<double> busy(std::ranges::max(rank_of_) + std::size_t{1}, 0);
    for (std::size_t g = 0; g < parts_; ++g) busy[rank_of_[g]] += lasts_[g] + lasts_[parts_ + g];
    return std::ranges::max(busy) <= period_ * (1 + model_tolerance);
  }

  /// The earliest starts that all waits allow; false where they go round in a circle.
  bool settle() {
    for (std::size_t round = 0; round <= starts_.size(); ++round) {
      bool any = false;
      for (const Wait& wait : waits_) {
        const double earliest = starts_[wait.from] + wait.by;
        if (earliest <= starts_[wait.to] + model_tolerance * period_) continue;
        starts_[wait.to] = earliest;
        any = true;
      }
      if (!any) return true;
    }
    return false;
  }

  bool decide() {
    const std::optional<Overlap> overlap = first_overlap();
    if (!overlap) return true;
    constexpr std::size_t most_steps = 20'000;
    if (++steps_ > most_steps) return false;
    const std::vector<double> before = starts_;
    for (const Wait& wait : {overlap->first, overlap->second}) {
      const Wait shorter = add(wait);
      if (settle() && decide()) return true;
      undo(shorter);
      starts_ = before;
    }
    return false;
  }

  std::optional<Overlap> first_overlap() const {
    for (std::size_t a = 0; a < starts_.size(); ++a) {
      for (std::size_t b = a + 1; b < starts_.size(); ++b) {
        if (rank_of_[a % parts_] != rank_of_[b % parts_]) continue;
        const double apart = starts_[b] - starts_[a];
        double periods = whole_below(apart / period_);
        const double rest = apart - periods * period_;
        const bool too_soon = rest<lasts_[a] - model_tolerance * period_, too_late = rest> period_ - lasts_[b] +
                              model_tolerance * period_;
        if (!too_soon && !too_late) continue;
        if (!too_soon) ++periods;  // it meets the next micro-batch's
        Overlap overlap{{a, b, lasts_[a] + periods * period_}, {b, a, lasts_[b] - periods * period_}};
        const auto pushed = [&](const Wait& wait) { return starts_[wait.from] + wait.by - starts_[wait.to]; };
        if (pushed(overlap.second) < pushed(overlap.first)) std::swap(overlap.first, overlap.second);
        return overlap;
      }
    }
    return std::nullopt;
  }

  std::size_t parts_;
  std::span<const std::uint32_t> rank_of_;
  double period_;
  std::vector<double> starts_, lasts_;
  std::vector<Wait> waits_;
  std::size_t steps_ = 0;
};

template <typename Numbers>
std::string row_of(const Numbers& numbers) {
  return fmt::format("{}", fmt::join(numbers, ":"));
}

/// What is on its way to a stage that is not ready for it, as MadPipe counts it: for each border in both directions.
enum class Buffers { none, at_borders };

class StarSearch {
 public:
  StarSearch(const Problem& problem, std::string_view strategy, const MadpipeProblem& table, Buffers buffers)
      : problem_(problem), strategy_(strategy), table_(table), m_(problem.micro_batches) {
    table_.bytes = [this, buffers, bytes = plain_bytes(problem)](std::uint32_t first, std::uint32_t last,
                                                                 std::uint32_t count) {
      double sum = bytes(first, last, std::min(count, m_));
      if (buffers == Buffers::none) return sum;
      if (first > 0) sum += 2 * table_.layers[first - 1].output_bytes;
      if (last < table_.layers.size()) sum += 2 * table_.layers[last - 1].output_bytes;
      return sum;
    };
  }

  std::optional<Partition> fastest() {
    table_.special = false;
    const std::optional<MadpipePlan> plain = plan_madpipe(table_);
    if (plain) add_in_line(*plain);
    table_.special = true;
    const std::optional<MadpipePlan> special = plan_madpipe(table_);
    if (special && !(plain && plain->seconds <= special->seconds)) {
      const std::optional<double> period_in_line = plain ? std::optional(plain->seconds) : std::nullopt;
      add_special(*special, period_in_line, most_in_flight(*special));
      // Stages of one device are seldom full at the same time: what does not fit by their sum may by simulation.
      add_special(*special, period_in_line, {most_alone(*special)});
    }
    return std::move(best_);
  }

 private:
  void add_in_line(const MadpipePlan& plan) {
    std::vector<std::uint32_t> star, usual;
    bool usual_fits = true;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      star.push_back(plan.stages[s].in_flight - 1);
      usual.push_back(static_cast<std::uint32_t>(plan.stages.size() - s) - 1);
      usual_fits = usual_fits && fits(bytes_of(plan.stages[s], usual.back() + 1));
    }
    add(plan, one_forward_one_backward_order(m_, star), plan.seconds);
    if (usual_fits && usual != star) add(plan, one_forward_one_backward_order(m_, usual), plan.seconds);
  }

  /// The period goes up from what the planner says until there is an order, below that of one stage a device.
  void add_special(const MadpipePlan& plan, std::optional<double> period_in_line,
                   const std::vector<std::vector<std::uint32_t>>& most) {
    const std::vector<std::uint32_t> rank_of = ranks_of(plan);
    const PartCosts costs = part_costs(problem_, partition_of(problem_, cut_of(plan), strategy_, {rank_of, {}}));
    double fine = 0;
    for (std::size_t g = 0; g < costs.parts(); ++g) {
      fine += costs.f[g] + costs.b[g] + costs.w[g];
      if (g > 0) fine += costs.sent[g - 1] + costs.returned[g - 1];
    }
    if (period_in_line) fine = std::min(fine, *period_in_line);
    std::optional<PeriodicTimes> found;
    std::vector<std::uint32_t> kept;
    const auto try_out = [&](double period) {
      for (const std::vector<std::uint32_t>& in_flight : most) {
        std::optional<PeriodicTimes> times = periodic_times(costs, rank_of, in_flight, period);
        if (!times) continue;
        found = std::move(times);
        kept = in_flight;
        return true;
      }
      return false;
    };
    double below = plan.seconds;
    if (try_out(below)) fine = below;
    constexpr double precision = 1e-6;
    while (fine - below > precision * fine) {
      const double middle = (below + fine) / 2;
      (try_out(middle) ? fine : below) = middle;
    }
    for (std::size_t s = 0; found && s < kept.size(); ++s) {  // no more than the period needs
      while (kept[s] > 1) {
        --kept[s];
        std::optional<PeriodicTimes> times = periodic_times(costs, rank_of, kept, found->period);
        if (times) {
          found = std::move(times);
        } else {
          ++kept[s];
          break;
        }
      }
    }
    if (found) add(plan, unrolled(*found, rank_of, m_), found->period);
  }

  /// The special device is that of its first stage.
  static std::vector<std::uint32_t> ranks_of(const MadpipePlan& plan) {
    std::vector<std::uint32_t> ranks;
    std::optional<std::uint32_t> special;
    std::uint32_t next = 0;
    for (const MadpipePlan::Stage& stage : plan.stages) {
      if (stage.special && !special) special = next++;
      ranks.push_back(stage.special ? *special : next++);
    }
    return ranks;
  }

  static StageCut cut_of(const MadpipePlan& plan) {
    std::vector<std::size_t> first;
    for (const MadpipePlan::Stage& stage : plan.stages) first.push_back(stage.first);
    return without_copies(std::move(first));
  }

  double bytes_of(const MadpipePlan::Stage& stage, std::uint32_t in_flight) const {
    return table_.bytes(stage.first, stage.last, in_flight);
  }
  bool fits(double bytes) const { return !table_.memory_bytes || bytes <= *table_.memory_bytes; }

  std::uint32_t enough(const MadpipePlan& plan) const {
    return std::min(m_, static_cast<std::uint32_t>(2 * plan.stages.size()));
  }

  /// By stage, what fits of each for itself.
  std::vector<std::uint32_t> most_alone(const MadpipePlan& plan) const {
    std::vector<std::uint32_t> counts;
    for (const MadpipePlan::Stage& stage : plan.stages) {
      counts.push_back(std::min(stage.in_flight, m_));
      while (counts.back() < enough(plan) && fits(bytes_of(stage, counts.back() + 1))) ++counts.back();
    }
    return counts;
  }

  /// By stage, what fits. The special device's stages share its memory: more for one is less for another, so that there
  /// are several answers.
  std::vector<std::vector<std::uint32_t>> most_in_flight(const MadpipePlan& plan) const {
    std::vector<std::uint32_t> counts = most_alone(plan);
    std::vector<std::size_t> special;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      if (!plan.stages[s].special) continue;
      special.push_back(s);
      counts[s] = std::min(plan.stages[s].in_flight, m_);
    }
    std::vector<std::vector<std::uint32_t>> answers;
    for (std::size_t favoured = 0; favoured < special.size(); ++favoured) {
      std::vector<std::uint32_t> answer = counts;
      const auto fits_with_one_more = [&](std::size_t s) {
        double bytes = 0;
        for (const std::size_t each : special) bytes += bytes_of(plan.stages[each], answer[each] + (each == s ? 1 : 0));
        return answer[s] < enough(plan) && fits(bytes);
      };
      for (bool any = true; any;) {
        any = false;
        for (std::size_t k = 0; k < special.size(); ++k) {
          const std::size_t s = special[(favoured + k) % special.size()];
          if (!fits_with_one_more(s)) continue;
          ++answer[s];
          any = true;
        }
      }
      if (std::ranges::find(answers, answer) == answers.end()) answers.push_back(std::move(answer));
    }
    return answers;
  }

  void add(const MadpipePlan& plan, const PipelineOrder& order, double period) {
    Partition partition = partition_of(problem_, cut_of(plan), strategy_, order);
    const OrderTimes times = time_order(part_costs(problem_, partition), m_, order);
    if (!times.stuck.empty() || (best_ && !(times.makespan() < least_))) return;
    if (table_.memory_bytes && !fits(static_cast<double>(plain_peak(problem_, partition).count))) return;
    least_ = times.makespan();
    std::vector<std::uint32_t> in_flight;
    for (const Waiting& waiting : waiting_in(partition)) in_flight.push_back(waiting.in_flight);
    partition.note = fmt::format("cut={} on devices {}, {} in flight, a period of {:.6g} s", text_of(cut_of(plan)),
                                 row_of(order.rank_of), row_of(in_flight), period);
    best_ = std::move(partition);
  }

  const Problem& problem_;
  std::string_view strategy_;
  MadpipeProblem table_;
  std::uint32_t m_;
  std::optional<Partition> best_;
  double least_ = 0;
};

/// One stage a device and one micro-batch at a time: no order of a stage on each device needs less.
class LeastMemoryCut {
 public:
  LeastMemoryCut(const Problem& problem, std::string_view strategy, std::uint32_t ranks)
      : problem_(problem), strategy_(strategy), ranks_(ranks) {}

  /// The cut whose fullest device needs the least: of all, if they are few, else what comes of the one whose parts need
  /// the least each for itself by moving one border by a stage at a time.
  std::optional<Partition> found() {
    constexpr std::size_t most_tries = 100;
    const std::vector<StageCut> all = all_cuts(problem_.chain->stages.size(), ranks_, most_tries);
    for (const StageCut& cut : all) try_out(cut);
    if (!all.empty()) return std::move(best_);
    if (const std::vector<std::size_t> first = by_parts_alone(); !first.empty()) try_out(without_copies(first));
    for (bool is_less = best_.has_value(); is_less && tries_ < most_tries;) {
      is_less = false;
      const StageCut from = cut_;
      for (std::size_t g = 1; g < from.first.size() && !is_less; ++g) {
        for (const std::size_t to : {from.first[g] - 1, from.first[g] + 1}) {
          StageCut moved = from;
          moved.first[g] = to;
          is_less = is_less || try_out(moved);
        }
      }
    }
    return std::move(best_);
  }

 private:
  std::vector<std::size_t> by_parts_alone() const {
    const RangeBytes bytes = plain_bytes(problem_);
    const auto needs = [&](std::uint32_t first, std::uint32_t last, std::uint32_t) -> std::optional<Bytes> {
      if (!is_trained(problem_, first, last)) return std::nullopt;
      return Bytes{static_cast<std::int64_t>(bytes(first, last, 1))};
    };
    return least_memory_cut(static_cast<std::uint32_t>(problem_.chain->stages.size()), ranks_, needs);
  }

  bool is_possible(const StageCut& cut) const {
    const std::size_t stages = problem_.chain->stages.size();
    for (std::size_t g = 0; g < cut.first.size(); ++g) {
      const std::size_t last = g + 1 < cut.first.size() ? cut.first[g + 1] : stages;
      if (cut.first[g] >= last || last > stages || !is_trained(problem_, cut.first[g], last)) return false;
    }
    return true;
  }

  /// True where the cut needs less than those before.
  bool try_out(const StageCut& cut) {
    if (!is_possible(cut)) return false;
    ++tries_;
    const std::vector<std::uint32_t> alone(ranks_, 0);
    Partition made =
        partition_of(problem_, cut, strategy_, one_forward_one_backward_order(problem_.micro_batches, alone));
    const Bytes peak = plain_peak(problem_, made);
    if (best_ && peak >= least_) return false;
    made.note = fmt::format("cut={}, one micro-batch in flight: the least memory", text_of(cut));
    best_ = std::move(made);
    least_ = peak;
    cut_ = cut;
    return true;
  }

  const Problem& problem_;
  std::string_view strategy_;
  std::uint32_t ranks_;
  std::size_t tries_ = 0;
  std::optional<Partition> best_;
  Bytes least_;   // of it
  StageCut cut_;  // of it
};

}  // namespace

std::optional<PeriodicTimes> periodic_times(const PartCosts& costs, std::span<const std::uint32_t> rank_of,
                                            std::span<const std::uint32_t> in_flight, double period) {
  return PeriodicSearch(costs, rank_of, in_flight, period).run();
}

PipelineOrder unrolled(const PeriodicTimes& times, std::span<const std::uint32_t> rank_of, std::uint32_t m) {
  PipelineOrder order{{rank_of.begin(), rank_of.end()}, {}};
  std::vector<std::vector<std::pair<double, Turn>>> begun(std::ranges::max(rank_of) + std::size_t{1});
  for (std::uint32_t g = 0; g < rank_of.size(); ++g) {
    for (std::uint32_t i = 0; i < m; ++i) {
      begun[rank_of[g]].push_back({times.forward[g] + i * times.period, {PartId{g}, i, piece::forward}});
      begun[rank_of[g]].push_back({times.backward[g] + i * times.period, {PartId{g}, i, piece::backward}});
    }
  }
  for (auto& of_rank : begun) {
    std::ranges::stable_sort(of_rank, {}, &std::pair<double, Turn>::first);
    std::vector<Turn>& turns = order.turns.emplace_back();
    for (const auto& [start, turn] : of_rank) turns.push_back(turn);
  }
  return order;
}

Partition star_partition(const Problem& problem, std::string_view strategy, std::uint32_t ranks,
                         const std::optional<Bytes>& budget) {
  if (const std::optional<std::string> why = too_long_for(problem, star_cut)) {
    throw InputError(fmt::format("{}: {}", strategy, *why));
  }
  MadpipeProblem table = madpipe_problem(problem, ranks);
  if (budget) table.memory_bytes = static_cast<double>(budget->count);
  std::optional<Partition> made = StarSearch(problem, strategy, table, Buffers::none).fastest();
  if (!made) made = StarSearch(problem, strategy, table, Buffers::at_borders).fastest();
  if (!made) made = LeastMemoryCut(problem, strategy, ranks).found();
  if (!made) {
    table.memory_bytes.reset();
    made = StarSearch(problem, strategy, table, Buffers::none).fastest();
  }
  EXPECTS(made);
  return *std::move(made);
}

}  // namespace plimsoll
