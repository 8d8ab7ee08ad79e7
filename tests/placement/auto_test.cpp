// The strategy `auto` against all placements and orders of small graphs.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/core/check.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/list.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/placement/placement_oracle.h"
#include "tests/random_case.h"

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

TEST_CASE("auto is near the optimum of all placements and orders", "[placement][auto]") {
  const std::vector<Pass> passes{pass_of(auto_strategy)};
  constexpr double per_second = 1e9;
  double sum = 0, worst = 0, sum_least = 0, worst_least = 0, sum_limited = 0, worst_limited = 0;
  std::size_t count = 0;
  for (const RandomCase seed : fewer_cases(1, 500)) {
    const SmallCase given = small_case(seed);
    const auto gap = [&](Seconds makespan, Nanoseconds optimum) {
      return per_second * makespan.value / static_cast<double>(optimum) - 1;
    };
    const Plan all = std::get<Plan>(plan(given.problem, passes, std::nullopt));
    CHECK(check(all.schedule, given.problem.graph, given.problem.platform).empty());
    const double unlimited = gap(all.makespan, optimum(given, unlimited_bytes));
    CHECK(unlimited > -1e-9);
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
    const double slower = gap(within.makespan, optimum(given, budget.count));
    worst_limited = std::max(worst_limited, slower);
    sum_limited += slower;
    ++count;
  }
  const auto number = static_cast<double>(count);
  WARN("unlimited " << sum / number << " worst " << worst << "; least " << sum_least / number << " worst "
                    << worst_least << "; limited " << sum_limited / number << " worst " << worst_limited);
  CHECK(sum / number <= 0.05);
  CHECK(worst <= 0.2);
  CHECK(sum_limited / number <= 0.05);
  CHECK(worst_limited <= 0.2);
  CHECK(worst_least <= 0.1);
}

}  // namespace
}  // namespace plimsoll
