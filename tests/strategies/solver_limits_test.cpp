// Limits of the solvers: wall time that holds, and sizes beyond which they say so at once.

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/solve/milp.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "tests/strategies/wall_time.h"

namespace plimsoll {
namespace {

/// Some 350 ops: far more than the integer program can solve in any test.
Problem medium() {
  return problem_of(dense_graph({4, 4, 4, 4}), gpus({}));
}

TEST_CASE("integer programs and relaxations end with their time, whatever phase they are in", "[limits][eleventh-10]") {
  const Problem problem = medium();
  const Bytes half{planned(problem, "store_all").peak.count / 2};
  for (const std::string strategy : {"checkmate", "checkmate_lp", "monet(most_ops=1000)"}) {
    INFO(strategy);
    const std::string options = strategy.ends_with(')') ? ",time_limit=2)" : "(time_limit=2)";
    const std::string spec = (strategy.ends_with(')') ? strategy.substr(0, strategy.size() - 1) : strategy) + options;
    const double start = wall_s();
    const Plan made = planned(problem, spec, half);
    CHECK(wall_s() - start < 2 + 20);  // building and the heuristics, on a busy machine; the solver alone takes minutes
    CHECK(made.note.find("stopped after 2 s (time_limit)") != std::string::npos);
    CHECK(made.makespan <= planned(problem, "greedy_recompute", half).makespan);
  }
}

TEST_CASE("programs that are too large are not built, and the answer says so", "[limits][eleventh-4]") {
  const Problem problem = problem_of(dense_graph(dense_layers), gpus({}));
  const Bytes half{planned(problem, "store_all").peak.count / 2};
  const std::string size = "that of 3209 ops has more than 2000000 nonzeros";
  CHECK(planned(problem, "checkmate", half).note == "no integer program: " + size);
  CHECK(planned(problem, "checkmate_lp", half).note == "no relaxation: " + size);
  const auto none = std::get<Infeasible>(plan_one(problem, "checkmate", Bytes{1}));
  CHECK(!none.smallest_is_proven);
  CHECK(none.reason == "no schedule that keeps the order of first runs was found; no integer program: " + size);
}

TEST_CASE("an integer program without time says that it had none", "[limits]") {
  LinearProgram program;
  const std::size_t x = program.variable({.cost = 1, .whole = true});
  program.row({{x, 2}}, 1, unbounded);
  CHECK(solve_milp(program, {}, {}).objective == 1);
  const MilpResult late = solve_milp(program, {}, {.seconds = 0});
  CHECK(late.end == MilpResult::End::out_of_time);
  CHECK(late.values.empty());
  CHECK(late.bound == -unbounded);
}

}  // namespace
}  // namespace plimsoll
