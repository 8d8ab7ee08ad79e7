// The strategy `dtr`: what it never evicts, and the best of its runs for each budget. The runtime has a test of its
// own.

#include <catch2/catch.hpp>

#include <algorithm>

#include "strategies/compose/plan.h"
#include "strategies/rematerialization/dtr/dtr.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

TEST_CASE("without a limit dtr is store_all", "[dtr]") {
  for (const std::string heuristic : {"dtr", "dtr_eq", "local", "lru", "size", "msps", "random"}) {
    const Problem problem = problem_of(even_chain(8), gpus({}));
    const auto ours = std::get<Plan>(plan_one(problem, "dtr(heuristic=" + heuristic + ")", std::nullopt));
    const auto all = std::get<Plan>(plan_one(problem, "store_all", std::nullopt));
    CHECK(ours.makespan == all.makespan);
    CHECK(ours.peak == all.peak);
  }
}

TEST_CASE("dtr trains an even chain in less memory than store_all, with less than twice the time", "[dtr]") {
  const Problem problem = problem_of(even_chain(16), gpus({}));
  const auto all = std::get<Plan>(plan_one(problem, "store_all", std::nullopt));
  for (const std::string heuristic : {"dtr", "dtr_eq", "local", "lru", "size", "msps", "random"}) {
    INFO(heuristic);
    const Bytes budget{all.peak.count * 6 / 10};
    const PlanOutcome outcome = plan_one(problem, "dtr(heuristic=" + heuristic + ")", budget);
    const Plan* made = std::get_if<Plan>(&outcome);
    REQUIRE(made != nullptr);
    CHECK(made->peak <= budget);
    CHECK(made->makespan > all.makespan);
    CHECK(made->makespan.value <= 2 * all.makespan.value);
  }
}

TEST_CASE("the network's input and what must not run twice are never evicted", "[dtr]") {
  const Problem problem = problem_of(random_graph(5, 6), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartLog part = part_log(problem, partition.parts[0]);
  std::size_t fixed = 0;
  for (std::size_t c = 0; c < part.op_of.size(); ++c) {
    const LoggedCall& call = part.log.calls[c];
    if (!part.op_of[c]) {
      CHECK(call.keep == Keep::until_released);
      continue;
    }
    const Op& op = problem.graph[*part.op_of[c]];
    const bool makes_gradient = std::ranges::any_of(
        op.outputs, [&](TensorId t) { return problem.graph[t].kind == TensorKind::parameter_gradient; });
    if (makes_gradient) CHECK(call.keep == Keep::until_released);
    if (op.phase == Phase::forward) CHECK(call.keep == Keep::evictable);
    fixed += makes_gradient ? 1 : 0;
  }
  CHECK(fixed > 0);
}

}  // namespace
}  // namespace plimsoll
