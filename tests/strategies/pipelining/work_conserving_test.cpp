// Work-conserving orders: no device is idle while it could take a turn, timed by a second reader; never slower than the
// fixed order, and never with more memory.

#include <map>

#include "strategies/pipelining/orders/greedy_turns.h"
#include "strategies/pipelining/orders/orders.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t forward = 0, backward = 1, weights = 2;

struct GreedyCase {
  Partition partition;
  TurnCosts costs;
};

/// A fixed order of unequal parts on devices with one or two of them.
GreedyCase random_greedy(Random& random) {
  GreedyCase made;
  const std::uint32_t p = random.between(1, 4), m = random.between(1, 6), kind = random.below(4);
  PipelineOrder order = kind == 0   ? gpipe_order(p, m, BackwardOrder::fifo)
                        : kind == 1 ? one_forward_one_backward_order(m, p)
                        : kind == 2 ? zero_bubble_order(p, m, 1)
                                    : interleaved_order(p, 2, m, WarmUp::megatron);
  made.partition.order = order.turns;
  for (std::uint32_t g = 0; g < order.rank_of.size(); ++g) {
    Part part;
    part.device = DeviceId{order.rank_of[g]};
    part.cut_before_weights = order.weights_apart;
    made.partition.parts.push_back(part);
    made.costs.stage.push_back(g);
    made.costs.seconds.push_back({1.0 * random.between(1, 9), 1.0 * random.between(1, 9), 1.0 * random.between(1, 9)});
    made.costs.sent.push_back(random.between(0, 3));
    made.costs.returned.push_back(random.between(0, 3));
    made.costs.kept.push_back(random.between(2, 8));
    made.costs.kept_for_weights.push_back(random.between(0, 2));
  }
  return made;
}

/// When each turn of an order begins and ends, and what a device may take when.
class OrderReader {
 public:
  OrderReader(const GreedyCase& of, const std::vector<std::vector<Turn>>& order) : of_(of), order_(order) {
    begins_.resize(order.size());
    for (bool any = true; any;) {
      any = false;
      for (std::size_t d = 0; d < order.size(); ++d) {
        double now = begins_[d].empty() ? 0 : end(d, begins_[d].size() - 1);
        while (begins_[d].size() < order[d].size()) {
          const std::optional<double> ready = ready_at(order[d][begins_[d].size()]);
          if (!ready) break;
          begins_[d].push_back(std::max(now, *ready));
          now = end(d, begins_[d].size() - 1);
          const Turn& turn = order[d][begins_[d].size() - 1];
          ends_[{turn.part.index, turn.micro_batch, turn.piece}] = now;
          any = true;
        }
      }
    }
  }

  bool is_complete() const {
    for (std::size_t d = 0; d < order_.size(); ++d) {
      if (begins_[d].size() < order_[d].size()) return false;
    }
    return true;
  }
  double begin(std::size_t d, std::size_t k) const { return begins_[d][k]; }
  double end(std::size_t d, std::size_t k) const {
    const Turn& turn = order_[d][k];
    return begins_[d][k] + of_.costs.seconds[turn.part.index][turn.piece];
  }

  std::optional<double> ready_at(const Turn& turn) const {
    const std::uint32_t g = turn.part.index, last = static_cast<std::uint32_t>(of_.partition.parts.size()) - 1;
    const auto after = [&](std::uint32_t part, std::uint32_t piece, double transfer) -> std::optional<double> {
      const auto found = ends_.find({part, turn.micro_batch, piece});
      if (found == ends_.end()) return std::nullopt;
      const bool is_here = of_.partition.parts[part].device == of_.partition.parts[g].device;
      return found->second + (is_here ? 0 : transfer);
    };
    if (turn.piece == weights) return after(g, backward, 0);
    if (turn.piece == forward) return g == 0 ? std::optional(0.0) : after(g - 1, forward, of_.costs.sent[g]);
    const std::optional<double> own = after(g, forward, 0);
    if (g == last) return own;
    const std::optional<double> gradient = after(g + 1, backward, of_.costs.returned[g]);
    return own && gradient ? std::optional(std::max(*own, *gradient)) : std::nullopt;
  }

 private:
  const GreedyCase& of_;
  const std::vector<std::vector<Turn>>& order_;
  std::vector<std::vector<double>> begins_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, double> ends_;
};

/// What a device keeps after its first `count` turns, and micro-batches of a part between its pieces.
struct Held {
  std::int64_t bytes = 0;
  std::map<std::uint32_t, std::int64_t> in_flight, waiting;
};

Held held_after(const GreedyCase& of, const std::vector<Turn>& turns, std::size_t count) {
  Held held;
  for (std::size_t k = 0; k < count; ++k) {
    const std::uint32_t p = turns[k].part.index;
    const bool splits = of.partition.parts[p].cut_before_weights;
    const std::int64_t for_weights = splits ? of.costs.kept_for_weights[p] : 0;
    if (turns[k].piece == forward) held.bytes += of.costs.kept[p], ++held.in_flight[p];
    if (turns[k].piece == backward) {
      held.bytes += for_weights - of.costs.kept[p];
      --held.in_flight[p];
      held.waiting[p] += splits ? 1 : 0;
    }
    if (turns[k].piece == weights) held.bytes -= for_weights, --held.waiting[p];
  }
  return held;
}

TEST_CASE("a device of a work-conserving order is never idle while it may take a turn", "[pipelining]") {
  std::size_t changed = 0, stuck = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    const GreedyCase of = random_greedy(random);
    const auto& fixed = of.partition.order;
    const auto made = greedy_turns(of.partition, of.costs);
    if (!made) {
      ++stuck;
      continue;
    }
    const OrderReader times(of, *made);
    REQUIRE(times.is_complete());
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      REQUIRE((*made)[d].size() == fixed[d].size());
      std::int64_t most_bytes = 0;
      std::map<std::uint32_t, std::int64_t> most_in_flight, most_waiting;
      for (std::size_t k = 1; k <= fixed[d].size(); ++k) {
        const Held held = held_after(of, fixed[d], k);
        if (fixed[d][k - 1].piece == forward) most_bytes = std::max(most_bytes, held.bytes);
        for (const auto& [p, count] : held.in_flight) most_in_flight[p] = std::max(most_in_flight[p], count);
        for (const auto& [p, count] : held.waiting) most_waiting[p] = std::max(most_waiting[p], count);
      }
      std::vector<Turn> left = fixed[d];
      for (std::size_t k = 0; k < (*made)[d].size(); ++k) {
        const Held held = held_after(of, (*made)[d], k);
        const auto may_be_taken = [&](const Turn& turn) {
          const std::uint32_t p = turn.part.index;
          const auto count = [p](const std::map<std::uint32_t, std::int64_t>& of_part) {
            const auto found = of_part.find(p);
            return found == of_part.end() ? 0 : found->second;
          };
          if (turn.piece == forward) {
            return count(held.in_flight) < count(most_in_flight) && held.bytes + of.costs.kept[p] <= most_bytes;
          }
          const bool splits = of.partition.parts[p].cut_before_weights;
          return turn.piece != backward || !splits || count(held.waiting) < count(most_waiting);
        };
        const Turn& taken = (*made)[d][k];
        CHECK(may_be_taken(taken));
        bool is_earlier = true;
        for (std::size_t j = 0; j < left.size(); ++j) {
          const bool is_it =
              left[j].part == taken.part && left[j].micro_batch == taken.micro_batch && left[j].piece == taken.piece;
          if (is_it) {
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(j--));
            is_earlier = false;
            continue;
          }
          if (!may_be_taken(left[j])) continue;
          // What stands before it in the order was not ready when it began; nothing was while the device was idle.
          const double ready = *times.ready_at(left[j]), free = k == 0 ? 0 : times.end(d, k - 1);
          if (is_earlier) CHECK(ready > times.begin(d, k));
          if (free < times.begin(d, k)) CHECK(ready >= times.begin(d, k));
        }
        changed += (*made)[d][k].part == fixed[d][k].part && (*made)[d][k].piece == fixed[d][k].piece ? 0 : 1;
      }
    }
  }
  if (all_cases()) CHECK(changed > 100);
  if (all_cases()) CHECK(stuck < 20);
}

/// Two devices, forwards of 3 and 1 s, backwards of 1 s, two micro-batches. In GPipe's order the second device waits
/// from 4 to 6 for its second forward, and all ends at 10; with its first backward in that time at 9.
TEST_CASE("a device takes its backward where it would wait for a forward", "[pipelining]") {
  Chain chain = equal_stages(2, {.f = 1, .b = 1, .w = 0}, {.all = 1, .for_weights = 0});
  chain.stages[0].forward = chain.stages[0].forward_nograd = Seconds{3};
  const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = 2});
  const auto made = [&](const std::string& spec) {
    return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
  };
  CHECK(made("gpipe(order=fifo)").makespan == Seconds{10});
  const Plan greedy = made("gpipe(order=fifo,work_conserving=yes)");
  CHECK(greedy.makespan == Seconds{9});
  CHECK(greedy.note == "the work-conserving order");
  CHECK(made("1f1b(work_conserving=yes)").note == "the fixed order: the work-conserving one is not faster");
}

/// The same devices, of which the second keeps 10 bytes of a micro-batch: of two in GPipe's order, else of one.
TEST_CASE("what a device needs less by taking turns as they come is the smallest budget", "[pipelining]") {
  Chain chain = equal_stages(2, {.f = 1, .b = 1, .w = 0}, {.all = 1, .for_weights = 0});
  chain.stages[0].forward = chain.stages[0].forward_nograd = Seconds{3};
  chain.stages[1].saved = Bytes{10};
  const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = 2});
  const auto smallest = [&](const std::string& spec) {
    return std::get<Infeasible>(plan(problem, parse_spec(spec, "test"), Bytes{0})).smallest;
  };
  CHECK(smallest("gpipe(order=fifo)") == Bytes{20});
  CHECK(smallest("gpipe(order=fifo,work_conserving=yes)") == Bytes{10});
  const PlanOutcome made = plan(problem, parse_spec("gpipe(order=fifo,work_conserving=yes)", "test"), Bytes{10});
  REQUIRE(std::holds_alternative<Plan>(made));
  CHECK(std::get<Plan>(made).peak == Bytes{10});
}

TEST_CASE("turns in which values come back to a device keep their places", "[pipelining]") {
  std::size_t come_back = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const std::uint32_t devices = random.between(2, 3);
    const Chain chain = with_weight_times(random_small_chain(seed, random.between(2 * devices, 2 * devices + 3)));
    const Problem problem =
        problem_of(chain, gpus({.count = devices, .to_host = BytesPerSecond{8}, .to_peers = BytesPerSecond{4}}),
                   {.micro_batches = random.between(2, 5), .backward = Backward::split});
    const PlanOutcome made = plan(problem, parse_spec("zb_h1(work_conserving=yes)|vdnn", "test"), std::nullopt);
    CHECK(check(std::get<Plan>(made).schedule, problem.graph, problem.platform).empty());
    come_back += std::get<Plan>(made).note == "the fixed order: returning micro-batches have their place in it" ? 1 : 0;
  }
  if (all_cases()) CHECK(come_back > 0);
}

TEST_CASE("work-conserving orders are not slower, and no device needs more memory", "[pipelining]") {
  std::size_t faster = 0, tried = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const std::uint32_t devices = 2 * random.between(1, 2), m = 2 * devices + 2 * random.between(0, 2);
    const Chain chain = with_weight_times(random_small_chain(seed, random.between(2 * devices, 2 * devices + 3)));
    const Platform platform = gpus({.count = devices,
                                    .to_peers = random.chance(0.5) ? unlimited_bandwidth : BytesPerSecond{4},
                                    .peer_latency = Seconds{random.between(0, 2) * 0.5}});
    for (const std::string name :
         {"gpipe(order=fifo", "gpipe(order=lifo", "1f1b(backward=split", "eager_1f1b(cut=uniform",
          "interleaved(chunks=2", "zb_h1(cut=uniform", "zb_h2(cut=uniform", "zb_auto(limit=2", "zb_v(limit=1",
          "v_half(cut=uniform", "v_min(cut=uniform", "chimera(pairs=1", "dualpipe(cut=uniform",
          "dualpipe_v(cut=uniform", "hanayo(limit=2"}) {
      INFO(name);
      const std::vector<Pass> fixed = parse_spec(name + ")", "test"),
                              greedy = parse_spec(name + ",work_conserving=yes)", "test");
      const Problem problem = problem_of(chain, platform, {.micro_batches = m, .backward = backward_for(fixed)});
      const Plan before = std::get<Plan>(plan(problem, fixed, std::nullopt)),
                 after = std::get<Plan>(plan(problem, greedy, std::nullopt));
      CHECK(check(after.schedule, problem.graph, problem.platform).empty());
      const Timeline was = simulate_event(before.schedule, problem.platform),
                     is = simulate_event(after.schedule, problem.platform);
      CHECK(is.makespan == after.makespan);
      CHECK(is.makespan <= was.makespan);
      for (std::uint32_t d = 0; d < devices; ++d) CHECK(is.peaks[d].bytes <= was.peaks[d].bytes);
      faster += is.makespan < was.makespan ? 1 : 0;
      ++tried;
    }
  }
  if (all_cases()) CHECK(20 * faster > tried);
}

}  // namespace
}  // namespace plimsoll
