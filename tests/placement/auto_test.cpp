// The strategy `auto` against all placements and orders of small graphs.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/placed_parts.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/placement/placement_oracle.h"
#include "tests/random_case.h"
#include "traces/models/synthetic_graphs.h"

namespace plimsoll {
namespace {

struct SmallCase {
  Problem problem;
  GraphDag graph;
  Machine machine;
};

/// Up to eight ops of 1 to 12 s, values of 1 to 9 B on links of 4 B/s with little latency, two or three devices.
SmallCase small_case(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t devices = random.between(2, 3);
  Problem problem = problem_of(random_graph(seed, random.between(2, 4)),
                               gpus({.count = devices,
                                     .to_peers = BytesPerSecond{random.chance(0.5) ? 4.0 : 32.0},
                                     .peer_latency = Seconds{0.125}}));
  GraphDag graph = graph_dag(problem, devices);
  Machine machine = machine_of(problem, graph, std::nullopt, 1);
  return {std::move(problem), std::move(graph), std::move(machine)};
}

Nanoseconds optimum(const SmallCase& given, std::int64_t limit) {
  const std::vector<std::int64_t> limits(given.machine.size(), limit);
  return least_makespan(given.graph.dag, given.machine, limits)->makespan;
}

/// The least time of all placements and orders that keep a budget, with the links that transfers share, by the event
/// engine.
Seconds shared_optimum(const SmallCase& given, Bytes budget) {
  const OpDag& dag = given.graph.dag;
  Seconds best{std::numeric_limits<double>::infinity()};
  std::vector<std::uint32_t> sequence(dag.size), position(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) sequence[v] = v;
  std::set<std::vector<std::vector<std::uint32_t>>> seen;
  const auto is_valid = [&] {
    for (std::uint32_t i = 0; i < dag.size; ++i) position[sequence[i]] = i;
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      for (const DagEdge& edge : dag.out[v]) {
        if (position[edge.node] < position[v]) return false;
      }
    }
    return true;
  };
  const auto consider = [&](const Placement& placement) {
    if (!seen.insert(placement.order).second) return;
    const Emulation times = emulate_in_order(dag, given.machine, placement);
    const PlainRun run = plain_run(given.problem, placed_parts(given.problem, given.graph, placement.on, times));
    if (std::ranges::max(run.peaks) <= budget) best = std::min(best, run.makespan);
  };
  std::uint32_t placements = 1;
  for (std::uint32_t v = 0; v < dag.size; ++v) placements *= static_cast<std::uint32_t>(given.machine.size());
  do {
    if (!is_valid()) continue;
    for (std::uint32_t code = 0; code < placements; ++code) {
      Placement placement{std::vector<std::uint32_t>(dag.size),
                          std::vector<std::vector<std::uint32_t>>(given.machine.size())};
      std::uint32_t rest = code;
      bool can_run = true;
      for (std::uint32_t v = 0; v < dag.size; ++v, rest /= static_cast<std::uint32_t>(given.machine.size())) {
        const std::uint32_t p = rest % static_cast<std::uint32_t>(given.machine.size());
        placement.on[v] = p;
        can_run = can_run && given.machine.memory[p] > 0 && time_on(dag, given.machine, v, p) != cannot_run;
      }
      for (const std::vector<std::uint32_t>& group : dag.together) {
        for (const std::uint32_t v : group) can_run = can_run && placement.on[v] == placement.on[group.front()];
      }
      if (!can_run) continue;
      for (const std::uint32_t v : sequence) placement.order[placement.on[v]].push_back(v);
      consider(placement);
    }
  } while (std::ranges::next_permutation(sequence).found);
  return best;
}

TEST_CASE("auto is near the optimum of all placements and orders", "[placement][auto][eleventh-1]") {
  const std::vector<Pass> passes{pass_of(auto_strategy)};
  constexpr double per_second = 1e9, most = 0.2;
  double sum = 0, worst = 0, sum_least = 0, worst_least = 0, sum_limited = 0, worst_limited = 0;
  std::size_t count = 0;
  for (const RandomCase seed : fewer_cases(1, 500)) {
    const SmallCase given = small_case(seed);
    const auto gap = [&](Seconds makespan, Nanoseconds optimum) {
      return per_second * makespan.value / static_cast<double>(optimum) - 1;
    };
    const Plan all = std::get<Plan>(plan(given.problem, passes, std::nullopt));
    CHECK(check(all.schedule, given.problem.graph, given.problem.platform).empty());
    // Far from the optimum of links that nobody shares it must be near that of the links as they are.
    const auto gap_within = [&](Seconds makespan, Bytes limit) {
      const double alone = gap(makespan, optimum(given, limit.count));
      if (limit.count == unlimited_bytes)
        CHECK(alone > -1e-9);  // within limits waiting may help, which it does not try
      return alone <= most ? alone : makespan.value / shared_optimum(given, limit).value - 1;
    };
    const double unlimited = gap_within(all.makespan, Bytes{unlimited_bytes});
    worst = std::max(worst, unlimited);
    sum += unlimited;

    const std::int64_t least = *smallest_limit(given.graph.dag, given.machine);
    const PlanOutcome nothing = plan(given.problem, passes, Bytes{0});
    const double named =
        static_cast<double>(std::get<Infeasible>(nothing).smallest->count) / static_cast<double>(least) - 1;
    worst_least = std::max(worst_least, named);
    sum_least += named;

    const Bytes budget{std::max(least * 5 / 4, std::get<Infeasible>(nothing).smallest->count)};
    const Plan within = std::get<Plan>(plan(given.problem, passes, budget));
    CHECK(within.peak <= budget);
    const double slower = gap_within(within.makespan, budget);
    worst_limited = std::max(worst_limited, slower);
    sum_limited += slower;
    ++count;
  }
  const auto number = static_cast<double>(count);
  WARN("unlimited " << sum / number << " worst " << worst << "; least " << sum_least / number << " worst "
                    << worst_least << "; limited " << sum_limited / number << " worst " << worst_limited);
  CHECK(sum / number <= 0.05);
  CHECK(worst <= most);
  CHECK(sum_limited / number <= 0.05);
  CHECK(worst_limited <= most);
  CHECK(worst_least <= 0.1);
}

/// Two forward ops and their backwards on two or three devices, of which each takes a third of the times, the times
/// themselves or twice as much, and one may have no memory.
SmallCase unlike_case(std::uint64_t seed, bool has_empty) {
  Random random(seed);
  Graph graph = random_graph(seed, 2);
  graph.source.dtype = "fp32";
  for (Op& op : graph.ops) {
    op.flops = Flops{6 * op.duration->value};
    op.bytes_moved = Bytes{0};
  }
  const std::uint32_t devices = random.between(2, 3);
  Gpus machine_of_test{.count = devices};  // transfers take no time, or links that they share
  if (seed % 2 == 1) machine_of_test.to_peers = BytesPerSecond{8};
  Platform platform = gpus(machine_of_test);
  for (std::uint32_t d = 0; d < devices; ++d) {
    Device& device = platform.devices[d];
    device.takes_trace_times = false;
    device.memory_bandwidth = BytesPerSecond{1};
    device.peak["fp32"] = FlopsPerSecond{std::vector{18.0, 6.0, 3.0}[random.below(3)]};
  }
  if (has_empty) platform.memories[devices - 1].capacity = Bytes{0};
  Problem problem = problem_of(std::move(graph), std::move(platform));
  GraphDag dag = graph_dag(problem, devices);
  Machine machine = machine_of(problem, dag, std::nullopt, 1);
  return {std::move(problem), std::move(dag), std::move(machine)};
}

TEST_CASE("auto is near the optimum of four ops on unlike devices, and leaves one without memory alone",
          "[placement][auto]") {
  const std::vector<Pass> passes{pass_of(auto_strategy)};
  constexpr double per_second = 1e9;
  double worst = 0, worst_shared = 0;
  for (const RandomCase seed : fewer_cases(1, 300)) {
    const bool has_empty = seed % 3 == 0;
    const SmallCase given = unlike_case(seed, has_empty);
    const Plan made = std::get<Plan>(plan(given.problem, passes, std::nullopt));
    CHECK(check(made.schedule, given.problem.graph, given.problem.platform).empty());
    std::vector<std::int64_t> limits(given.machine.size(), unlimited_bytes);
    if (has_empty) limits.back() = 0;
    const Nanoseconds least = least_makespan(given.graph.dag, given.machine, limits)->makespan;
    const double own = per_second * made.makespan.value / static_cast<double>(least) - 1;
    CHECK(own >= -1e-9);
    if (seed % 2 == 0) {
      worst = std::max(worst, own);
    } else {
      worst_shared =
          std::max(worst_shared, made.makespan.value / shared_optimum(given, Bytes{unlimited_bytes}).value - 1);
    }
    if (!has_empty) continue;
    const DeviceId empty = id_at<DeviceId>(given.machine.size() - 1);
    for (const Step& step : made.schedule.steps) CHECK(made.schedule[step.stream].device != empty);
  }
  WARN("transfers without time: worst " << worst << "; with links that they share: worst " << worst_shared);
  CHECK(worst <= 1e-9);
  CHECK(worst_shared <= 0.05);
}

/// Forward ops and their backwards, of values that take about as long to send as ops to run, on eight devices.
TEST_CASE("auto asks for four and two of eight devices, too, and is hardly slower than on two", "[placement][auto]") {
  for (const RandomCase seed : fewer_cases(1, 30)) {
    const Problem problem = problem_of(
        random_graph(seed, 8), gpus({.count = 8, .to_peers = BytesPerSecond{1}, .peer_latency = Seconds{0.125}}));
    const auto made = [&](const char* spec) {
      return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
    };
    const Plan all = made("auto"), two = made("auto(devices=2)");
    CHECK(all.makespan.value <= 1.05 * two.makespan.value);
    for (const char* noted : {"one_device", "the best on 4", "the best on 2"}) {
      CHECK(all.note.find(noted) != std::string::npos);
    }
    CHECK(two.note.find("the best on") == std::string::npos);
  }
}

// With so little effort it simulates but four of what is best where no link is shared.
TEST_CASE("auto is never slower than the planners that it asks, each simulated on its own",
          "[placement][auto][eleventh-5]") {
  for (const char* graph : {"rnn", "trn"}) {
    const Problem problem =
        problem_of(synthetic_graph(std::string(graph) + ":ops=2200"),
                   gpus({.count = 16, .to_peers = BytesPerSecond{2e10}, .peer_latency = Seconds{25e-6}}));
    const auto makespan = [&](const char* spec) {
      return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt)).makespan;
    };
    const Seconds own = makespan("auto(effort=0.01)");
    for (const char* planner : {"one_device", "contiguous", "heft", "etf", "pardnn", "metis"}) {
      INFO(graph << " " << planner << " " << makespan(planner).value / own.value);
      CHECK(own <= makespan(planner));
    }
  }
}

}  // namespace
}  // namespace plimsoll
