// Makes an order of a pipeline's turns shorter by moving single turns, within limits of memory: simulated annealing.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/api/option_rules.h"
#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/list_order.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/v_slots.h"
#include "strategies/pipelining/orders/zero_bubble_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

/// What is to be short: the whole iteration, or the longest rank from its first turn to its last one.
enum class Shorter { makespan, longest };

double length_of(const OrderTimes& times, Shorter shorter) {
  return shorter == Shorter::makespan ? times.makespan() : times.longest();
}

class TurnMoves {
 public:
  TurnMoves(const PartCosts& costs, std::uint32_t m, const PipelineOrder& start, std::span<const std::int64_t> limits,
            Shorter shorter)
      : costs_(costs), m_(m), limits_(limits), shorter_(shorter), order_(start), best_(start) {
    for (std::vector<Turn>& turns : order_.turns) EXPECTS(number(turns, order_.weights_apart));
    best_length_ = length_ = value(time_order(costs, m, order_));
    EXPECTS(length_ < stuck);
    best_ = order_;
  }

  PipelineOrder run(std::size_t moves) {
    std::mt19937 random(1);  // the engine's numbers are the same everywhere, distributions' are not
    const double hot = 0.02 * length_;
    for (std::size_t k = 0; k < moves; ++k) {
      const double left = 1 - static_cast<double>(k) / static_cast<double>(moves);
      const std::size_t r = random() % order_.turns.size();
      std::vector<Turn>& turns = order_.turns[r];
      if (turns.size() < 2) continue;
      const std::size_t from = random() % turns.size();
      const std::size_t by = 1 + random() % (1 + std::min<std::size_t>(turns.size() / 4, 12));
      const std::size_t to = random() % 2 == 0 ? (from < by ? 0 : from - by) : std::min(from + by, turns.size() - 1);
      if (turns[from].part == turns[to].part && turns[from].piece == turns[to].piece) continue;
      const std::vector<Turn> before = turns;
      move(turns, from, to);
      if (!number(turns, order_.weights_apart) || !fits(r)) {
        turns = before;
        continue;
      }
      const double now = value(time_order(costs_, m_, order_));
      const double chance = static_cast<double>(random()) / 4294967296.0;
      if (now > length_ && !(chance < std::exp((length_ - now) / (hot * left * left + 1e-12 * length_)))) {
        turns = before;
        continue;
      }
      length_ = now;
      if (now < best_length_) {
        best_length_ = now;
        best_ = order_;
      }
    }
    return best_;
  }

 private:
  static constexpr double stuck = 1e300;

  /// The length, and far less all ranks' ends together, which says where there is room to win.
  double value(const OrderTimes& times) const {
    if (!times.stuck.empty()) return stuck;
    double ends = 0;
    for (std::size_t r = 0; r < times.last.size(); ++r) ends += times.last[r];
    return length_of(times, shorter_) + 0.01 * ends / static_cast<double>(times.last.size());
  }

  static void move(std::vector<Turn>& turns, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t k) { return turns.begin() + static_cast<std::ptrdiff_t>(k); };
    if (from < to) {
      std::rotate(at(from), at(from + 1), at(to + 1));
    } else {
      std::rotate(at(to), at(from), at(from + 1));
    }
  }

  /// Numbers each part's forwards, backwards and W by micro-batch. False where one comes before what it reads.
  bool number(std::vector<Turn>& turns, bool weights_apart) {
    done_.assign(3 * costs_.parts(), 0);
    for (Turn& turn : turns) {
      std::uint32_t* of_part = &done_[3 * turn.part.index];
      turn.micro_batch = of_part[turn.piece]++;
      if (turn.piece > 0 && of_part[turn.piece] > of_part[turn.piece - 1]) return false;
    }
    EXPECTS(weights_apart || std::ranges::none_of(turns, [](const Turn& t) { return t.piece == piece::weights; }));
    return true;
  }

  bool fits(std::size_t r) const {
    std::int64_t kept = 0;
    for (const Turn& turn : order_.turns[r]) {
      const std::size_t g = turn.part.index;
      const std::int64_t waits = order_.weights_apart ? costs_.kept_for_weights[g] : 0;
      if (turn.piece == piece::forward && (kept += costs_.kept[g]) > limits_[r]) return false;
      if (turn.piece == piece::backward) kept += waits - costs_.kept[g];
      if (turn.piece == piece::weights) kept -= waits;
    }
    return true;
  }

  const PartCosts& costs_;
  std::uint32_t m_;
  std::span<const std::int64_t> limits_;
  Shorter shorter_;
  PipelineOrder order_, best_;
  double length_ = 0, best_length_ = 0;
  std::vector<std::uint32_t> done_;
};

/// Never longer than `start`; no rank keeps more than its limit in bytes after a forward, which `start` must hold.
/// `moves`: how many are tried; the same input gives the same order.
PipelineOrder search_order(const PartCosts& costs, std::uint32_t micro_batches, const PipelineOrder& start,
                           std::span<const std::int64_t> limits, Shorter shorter, std::size_t moves) {
  PipelineOrder found = TurnMoves(costs, micro_batches, start, limits, shorter).run(moves);
  const auto length = [&](const PipelineOrder& order) {
    return length_of(time_order(costs, micro_batches, order), shorter);
  };
  return length(found) < length(start) ? found : start;
}

struct SearchOptions : LineOptions {
  std::string limit = "1";  ///< one, or one for each device
  Shorter shorter = Shorter::makespan;
  std::size_t moves = 20'000;
};

std::optional<std::vector<double>> read_limits(std::string_view text) {
  std::vector<double> limits;
  while (true) {
    const std::string_view one = text.substr(0, text.find(':'));
    if (!number_between<1, 10'000, 100>(one)) return std::nullopt;
    std::from_chars(one.data(), one.data() + one.size(), limits.emplace_back());
    if (one.size() == text.size()) return limits;
    text.remove_prefix(one.size() + 1);
  }
}

/// W as turns of their own, each after its backward.
PipelineOrder with_weights_apart(PipelineOrder order) {
  for (std::vector<Turn>& turns : order.turns) {
    std::vector<Turn> made;
    for (const Turn& turn : turns) {
      made.push_back(turn);
      if (turn.piece == piece::backward) made.push_back({turn.part, turn.micro_batch, piece::weights});
    }
    turns = std::move(made);
  }
  order.weights_apart = true;
  return order;
}

/// Where the parts are, and the orders of other strategies for that.
struct Shape {
  std::vector<std::uint32_t> rank_of;
  Partition cut;
  PartCosts costs;
  std::vector<std::int64_t> limits;
  void (*add_orders)(Shape&, std::uint32_t micro_batches);
  std::vector<PipelineOrder> orders = {};
};

/// Both of its orders (`orders_option`).
void add_heuristic(Shape& shape, std::uint32_t m, const OrderHeuristic& heuristic) {
  if (auto best = shortest_for_any_network(shape.costs, m, heuristic)) shape.orders.push_back(std::move(*best));
  if (auto published = heuristic(shape.costs)) shape.orders.push_back(std::move(*published));
}

void add_line(Shape& shape, std::uint32_t m) {
  const auto p = static_cast<std::uint32_t>(shape.rank_of.size());
  std::vector<std::uint32_t> one(p), two(p);
  for (std::uint32_t r = 0; r < p; ++r) {
    one[r] = p - r - 1;
    two[r] = 2 * one[r];
  }
  shape.orders = {with_weights_apart(one_forward_one_backward_order(m, one)),
                  with_weights_apart(one_forward_one_backward_order(m, two)),
                  with_weights_apart(gpipe_order(p, m, BackwardOrder::fifo)), zero_bubble_order(p, m, 1),
                  zero_bubble_order(p, m, 2)};
  add_heuristic(shape, m, [&](const PartCosts& costs) { return zero_bubble_search(costs, m, shape.limits); });
}

void add_v(Shape& shape, std::uint32_t m) {
  const auto p = static_cast<std::uint32_t>(shape.rank_of.size() / 2);
  for (const VBlock& block : {v_min_block(p), v_half_block(p), whole_v_block(p)}) {
    for (PipelineOrder& order : orders_beside_published(block, m)) {
      shape.orders.push_back(order.weights_apart ? std::move(order) : with_weights_apart(std::move(order)));
    }
  }
  if (m >= 2 * p) shape.orders.push_back(dualpipe_v_order(p, m));
  add_heuristic(shape, m, [&](const PartCosts& costs) { return v_shape_search(costs, m, shape.limits); });
}

void add_interleaved(Shape& shape, std::uint32_t m) {
  const auto p = static_cast<std::uint32_t>(shape.rank_of.size() / 2);
  for (const WarmUp warm_up : {WarmUp::megatron, WarmUp::less_memory}) {
    shape.orders.push_back(with_weights_apart(interleaved_order(p, 2, m, warm_up)));
  }
}

/// List scheduling in any shape, with and without patience for what a rank would rather take.
void add_lists(Shape& shape, std::uint32_t m) {
  for (const bool forwards_first : {false, true}) {
    for (const bool fill_gaps : {false, true}) {
      for (const double patience : {0.0, 0.5, 1.0}) {
        auto order =
            list_order(shape.costs, shape.rank_of, m, true, shape.limits, {forwards_first, fill_gaps, patience});
        if (order) shape.orders.push_back(std::move(*order));
      }
    }
  }
}

/// By device, as the option has them.
std::vector<double> limits_asked(const SearchOptions& options, std::uint32_t p) {
  const std::string& text = options.limit;
  std::vector<double> limits = *read_limits(text);
  if (limits.size() == 1) limits.resize(p, limits.front());
  if (limits.size() != p) {
    throw InputError(
        fmt::format("pipeline_search: limit={} is for {} devices, and the pipeline has {}", text, limits.size(), p));
  }
  return limits;
}

/// Of what micro-batches keep, by rank: the least of its limit and of what the budget, or a smaller memory of its
/// device, leaves beside all else in plain training, taken of each part for itself.
void limit_to(const Problem& problem, const Bytes& budget, Shape& shape) {
  std::vector<std::int64_t> beside(shape.limits.size(), 0);
  for (std::size_t g = 0; g < shape.rank_of.size(); ++g) {
    const PartTask task{problem, shape.cut, id_at<PartId>(g)};
    const TapeCost cost = tape_cost(problem, task.part(), plain_tape(task));
    beside[shape.rank_of[g]] += (cost.peak - cost.kept).count;
  }
  for (std::size_t r = 0; r < beside.size(); ++r) {
    const Bytes capacity = problem.platform[problem.platform.devices[r].memory].capacity.value_or(budget);
    shape.limits[r] = std::min(shape.limits[r], std::min(budget, capacity).count - beside[r]);
  }
}

/// Whether every part can send the next one what it makes, and get its gradient back.
bool has_routes(const Platform& platform, std::span<const std::uint32_t> rank_of) {
  RouteFinder routes(platform);
  for (std::size_t g = 1; g < rank_of.size(); ++g) {
    const MemoryId before = platform.devices[rank_of[g - 1]].memory, here = platform.devices[rank_of[g]].memory;
    if (before != here && (!routes.between(before, here) || !routes.between(here, before))) return false;
  }
  return true;
}

/// With no orders yet. The last device of a row need not have a link to the first.
std::vector<Shape> shapes_for(const Problem& problem, const SearchOptions& options, std::uint32_t p,
                              const std::optional<Bytes>& budget) {
  std::vector<std::uint32_t> line(p);
  std::iota(line.begin(), line.end(), 0U);
  std::vector<std::pair<std::vector<std::uint32_t>, decltype(Shape::add_orders)>> ways{{std::move(line), add_line}};
  if (problem.chain->stages.size() >= std::size_t{2} * p) {
    ways.emplace_back(v_shape(p), add_v);
    std::vector<std::uint32_t> round = interleaved_order(p, 2, 1, WarmUp::megatron).rank_of;
    if (has_routes(problem.platform, round)) ways.emplace_back(std::move(round), add_interleaved);
  }
  const std::vector<double> limits = limits_asked(options, p);
  std::vector<Shape> shapes;
  for (auto& [rank_of, add_orders] : ways) {
    Partition cut = cut_for(problem, options, "pipeline_search", rank_of, true, budget);
    PartCosts costs = part_costs(problem, cut);
    std::vector<std::int64_t> kept = limits_of(costs, rank_of, limits);
    shapes.push_back({std::move(rank_of), std::move(cut), std::move(costs), std::move(kept), add_orders});
    if (budget) limit_to(problem, *budget, shapes.back());
  }
  return shapes;
}

void add_orders(std::vector<Shape>& shapes, std::uint32_t m) {
  for (Shape& shape : shapes) {
    if (std::ranges::any_of(shape.limits, [](std::int64_t limit) { return limit < 0; })) continue;
    shape.add_orders(shape, m);
    add_lists(shape, m);
    std::erase_if(shape.orders, [&](const PipelineOrder& order) {
      return !std::ranges::equal(kept_at_most(shape.costs, order), shape.limits, std::ranges::less_equal{});
    });
  }
}

/// So that the search of a large pipeline ends.
std::size_t moves_for(const SearchOptions& options, const PipelineOrder& order) {
  constexpr std::size_t turns_timed = 40'000'000;
  std::size_t turns = 1;
  for (const std::vector<Turn>& of_rank : order.turns) turns += of_rank.size();
  return std::min(options.moves, turns_timed / turns);
}

/// Whether there are few enough turns to simulate all orders.
bool are_small(const std::vector<Shape>& shapes) {
  constexpr std::size_t turns_simulated = 100'000;
  std::size_t turns = 0;
  for (const Shape& shape : shapes) {
    for (const PipelineOrder& order : shape.orders) {
      for (const std::vector<Turn>& of_rank : order.turns) turns += of_rank.size();
    }
  }
  return turns <= turns_simulated;
}

/// Nothing where the limits are too small for one micro-batch. What the search has found and what it began with are
/// simulated where they are small, since its own times know nothing of links that several transfers share, or of sums
/// of gradients that end an iteration.
std::optional<Partition> best_of(const Problem& problem, std::vector<Shape> shapes, const SearchOptions& options) {
  const std::uint32_t m = problem.micro_batches;
  const Shorter shorter = options.shorter;
  add_orders(shapes, m);
  const bool is_simulated = shorter == Shorter::makespan && are_small(shapes);
  std::optional<Partition> best;
  double least = 0;
  const auto take = [&](Partition made, double time) {
    if (best && !(time < least)) return;
    least = time;
    best = std::move(made);
  };
  for (Shape& shape : shapes) {
    const auto length = [&](const PipelineOrder& order) {
      return length_of(time_order(shape.costs, m, order), shorter);
    };
    const auto start = std::ranges::min_element(shape.orders, {}, length);
    if (start == shape.orders.end()) continue;
    PipelineOrder found = search_order(shape.costs, m, *start, shape.limits, shorter, moves_for(options, *start));
    if (!is_simulated) {
      take(with_turns(std::move(shape.cut), found), length(found));
      continue;
    }
    shape.orders.insert(shape.orders.begin(), std::move(found));
    for (const PipelineOrder& order : shape.orders) {
      Partition made = with_turns(shape.cut, order);
      const double time = plain_timeline(problem, made).makespan.value;
      take(std::move(made), time);
    }
  }
  return best;
}

/// One micro-batch after the other through all parts.
PipelineOrder one_at_a_time(std::vector<std::uint32_t> rank_of, std::uint32_t m) {
  PipelineOrder order{std::move(rank_of), {}, true};
  order.turns.resize(std::ranges::max(order.rank_of) + std::size_t{1});
  const auto parts = static_cast<std::uint32_t>(order.rank_of.size());
  for (std::uint32_t i = 0; i < m; ++i) {
    for (std::uint32_t g = 0; g < parts; ++g) order.turns[order.rank_of[g]].push_back({PartId{g}, i, piece::forward});
    for (std::uint32_t g = parts; g-- > 0;) {
      for (const std::uint32_t each : {piece::backward, piece::weights}) {
        order.turns[order.rank_of[g]].push_back({PartId{g}, i, each});
      }
    }
  }
  return order;
}

/// The order that needs the least in plain training: of all that the search begins with, where they are small, and of
/// one micro-batch at a time. Nothing where the limits are too small for one.
std::optional<Partition> with_least_memory(const Problem& problem, std::vector<Shape> shapes) {
  const std::uint32_t m = problem.micro_batches;
  add_orders(shapes, m);
  const bool all = are_small(shapes);
  std::optional<Partition> best;
  Bytes least;
  for (Shape& shape : shapes) {
    if (!all) shape.orders.clear();
    PipelineOrder alone = one_at_a_time(shape.rank_of, m);
    const bool is_allowed =
        std::ranges::equal(kept_at_most(shape.costs, alone), shape.limits, std::ranges::less_equal{});
    if (is_allowed) shape.orders.push_back(std::move(alone));
    for (const PipelineOrder& order : shape.orders) {
      Partition made = with_turns(shape.cut, order);
      const Bytes peak = plain_peak(problem, made);
      if (best && peak >= least) continue;
      least = peak;
      best = std::move(made);
    }
  }
  return best;
}

std::vector<PartitionOutcome> pipeline_search_partition(const Problem& problem, const SearchOptions& options,
                                                        std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t p = ranks_of(problem, options, "pipeline_search");
  // By limits and first stages, since few budgets are less than what the option allows; null: nothing fits them.
  std::map<std::vector<std::int64_t>, std::shared_ptr<const Partition>> known;
  const auto searched = [&](const std::optional<Bytes>& budget) {
    std::vector<Shape> shapes = shapes_for(problem, options, p, budget);
    std::vector<std::int64_t> asked;
    for (const Shape& shape : shapes) {
      asked.insert(asked.end(), shape.limits.begin(), shape.limits.end());
      for (const Part& part : shape.cut.parts) asked.push_back(part.ops.front().index);
    }
    const auto [found, is_new] = known.try_emplace(std::move(asked));
    if (is_new) {
      std::optional<Partition> made = best_of(problem, std::move(shapes), options);
      if (made) found->second = std::make_shared<const Partition>(*std::move(made));
    }
    return found->second;
  };
  std::shared_ptr<const Partition> smallest;
  const auto least = [&]() -> std::shared_ptr<const Partition> {
    if (smallest != nullptr) return smallest;
    std::optional<Partition> made = with_least_memory(problem, shapes_for(problem, options, p, std::nullopt));
    if (made) smallest = std::make_shared<const Partition>(*std::move(made));
    return smallest;
  };
  std::vector<PartitionOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    std::shared_ptr<const Partition> made = searched(budget);
    if (made == nullptr && budget) made = least();
    if (made == nullptr) {
      const Shape line = std::move(shapes_for(problem, options, p, std::nullopt).front());
      throw InputError(fmt::format("pipeline_search: limit={} is too small for one micro-batch; the least is {}",
                                   options.limit, least_limit(line.costs, line.rank_of)));
    }
    outcomes.emplace_back(std::move(made));
  }
  return outcomes;
}

constexpr auto pipeline_search_options = options_of<SearchOptions>(
    stages_option, cut_option, shared_updates_option,
    option_of<&SearchOptions::limit>({
        .name = "limit",
        .values = "a number from 0.01 to 100, or one for each device, such as 1:1:2:1",
        .help = "activations that a device may keep; 1: its activations of p micro-batches, on p devices",
        .allowed = [](std::string_view text) { return read_limits(text).has_value(); },
    }),
    option_of<&SearchOptions::shorter>({
        .name = "shorter",
        .words = "makespan longest",
        .help =
            "what the search shortens: the iteration, or the longest time of a device from its first step to its last",
    }),
    option_of<&SearchOptions::moves>({
        .name = "moves",
        .least = 0,
        .most = 1e8,
        .help = "moves of single turns that are tried for each way to place the parts; fewer in a large pipeline",
    }));

}  // namespace

// The strategy `pipeline_search`: the best of the orders of all other strategies with one or two parts a device and a
// split backward, made shorter by moving single turns.
extern constinit const StrategyInfo pipeline_search_strategy{
    .name = "pipeline_search",
    .family = Family::pipelining,
    .summary = "the best of the other orders of one or two parts a device, made shorter by moving single turns",
    .source = "own",
    .chains_only = true,
    .options = pipeline_search_options,
    .kind = PartitionStrategy{.partition = by_options<pipeline_search_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
