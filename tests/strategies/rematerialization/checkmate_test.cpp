// Checkmate's program against the exact search, and its rounding against the program.

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

TEST_CASE("checkmate's optimum of the unit net of 17 nodes at budget 4 is 26", "[checkmate]") {
  const Problem problem = problem_of(unit_net(8), gpus({}));
  const auto made = std::get<Plan>(plan_one(problem, "checkmate", Bytes{4}));
  CHECK(made.makespan.value == 26);
  CHECK(made.gap == 0.0);
}

TEST_CASE("both formulations of checkmate agree with the exact search where the order of first runs is no restriction",
          "[checkmate]") {
  std::size_t solved = 0;
  for (const RandomCase seed : fewer_cases(1, 20)) {
    Random random(seed);
    INFO("seed " << seed);
    const Problem problem = problem_of(unit_net(random.between(2, 5)), gpus({}));
    const std::int64_t budget = random.between(3, 7);
    const PlanOutcome exact = plan_one(problem, "exact", Bytes{budget});
    const PlanOutcome tight = plan_one(problem, "checkmate", Bytes{budget});
    const PlanOutcome kappa = plan_one(problem, "checkmate(formulation=kappa)", Bytes{budget});
    REQUIRE(tight.index() == exact.index());
    REQUIRE(kappa.index() == exact.index());
    if (const Infeasible* none = std::get_if<Infeasible>(&exact)) {
      CHECK(std::get<Infeasible>(tight).smallest == none->smallest);
      continue;
    }
    ++solved;
    CHECK(std::get<Plan>(tight).makespan.value == Approx(std::get<Plan>(exact).makespan.value));
    CHECK(std::get<Plan>(kappa).makespan.value == Approx(std::get<Plan>(exact).makespan.value));
  }
  if (all_cases()) CHECK(solved > cases_of(5U));
}

/// Whether the schedule is of the program's class: between two first runs every op runs at most once, in the given
/// order.
bool advances_in_order(const Plan& made) {
  std::size_t first_runs = 0, least = 0;  // least: the first op that may run next
  for (const Step& step : made.schedule.steps) {
    const std::size_t o = step.op.index;
    if (o > first_runs || o < least) return false;
    least = o + 1;
    if (o < first_runs) continue;
    ++first_runs;
    least = 0;
  }
  return true;
}

// Where an optimal schedule is of the program's class, the program finds one as fast. Other orders of first runs, or an
// op that runs twice between two of them, can be faster.
TEST_CASE("exact <= checkmate <= checkmate_lp on random graphs with one sink", "[checkmate]") {
  const double reads_newest = GENERATE(1.0, 0.5);
  INFO("chance to read the newest value " << reads_newest);
  std::size_t solved = 0, equal = 0;
  for (const RandomCase seed : fewer_cases(1, 150)) {
    Random random(seed);
    INFO("seed " << seed);
    const Problem problem = problem_of(random_single_sink(seed, random.between(5, 9), reads_newest), gpus({}));
    const std::int64_t most = std::get<Plan>(plan_one(problem, "exact", std::nullopt)).peak.count;
    const Bytes budget{most - random.between(1, 3)};
    const PlanOutcome exact = plan_one(problem, "exact", budget);
    const PlanOutcome program = plan_one(problem, "checkmate", budget);
    const PlanOutcome rounded = plan_one(problem, "checkmate_lp", budget);
    if (std::holds_alternative<Infeasible>(exact)) {
      CHECK(std::holds_alternative<Infeasible>(program));
      CHECK(std::holds_alternative<Infeasible>(rounded));
      continue;
    }
    const double best = std::get<Plan>(exact).makespan.value;
    const Plan* made = std::get_if<Plan>(&program);
    const Plan* near = std::get_if<Plan>(&rounded);
    ++solved;
    if (made == nullptr) {
      CHECK(near == nullptr);
      continue;
    }
    CHECK(made->makespan.value >= best - 1e-9);
    CHECK(made->gap.value_or(1) == 0);
    if (advances_in_order(std::get<Plan>(exact))) CHECK(made->makespan.value == Approx(best));
    equal += made->makespan.value <= best + 1e-9 ? 1 : 0;
    if (near != nullptr) CHECK(near->makespan.value >= made->makespan.value - 1e-9);
  }
  CAPTURE(solved, equal);
  if (all_cases()) CHECK(solved > cases_of(20U));
  if (every_case() && all_cases()) CHECK(equal > solved / 2);
}

}  // namespace
}  // namespace plimsoll
