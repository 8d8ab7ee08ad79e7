// Graphs that have updates and their states of their own, planned as chains of stages.

#include <catch2/catch.hpp>

#include <string>
#include <variant>

#include "strategies/compose/spec.h"
#include "tests/hybrid/judged_plan.h"
#include "tests/training/training.h"

using namespace plimsoll;

// The judge and the engines see the states in the schedule, whatever the planner's model of a chain counts.
TEST_CASE("budgets hold where a graph has the states of its updates itself", "[hybrid]") {
  const std::string updates = GENERATE("sgd", "momentum", "adam");
  const char* spec = GENERATE("chain|rotor", "data_parallel(ranks=2)|rotor", "zero1(ranks=2)|rotor",
                              "megatron(tensor=2)|1f1b(stages=2)|rotor", "context(ranks=2,way=all_to_all)|1f1b|rotor");
  CAPTURE(updates, spec);
  const std::string network =
      "gpt:layers=2,width=16,heads=4,sequence=16,batch=4,vocabulary=24,view=graph,updates=" + updates;
  const Problem problem = problem_on(network_model(network), "h100_sxm_8", 8, spec, Optimizer::none);
  const Bytes all = judged_plan(problem, spec).peak;
  const PlanOutcome none = plan(problem, parse_spec(spec, "test"), Bytes{1});
  REQUIRE(std::holds_alternative<Infeasible>(none));
  const Bytes least = *std::get<Infeasible>(none).smallest;
  CHECK(least <= all);
  for (const Bytes& budget : {least, Bytes{(least.count + all.count) / 2}}) {
    CHECK(judged_plan(problem, spec, budget).peak <= budget);
  }
}
