// The chain strategies against each other: rotor is the best of its class, and each stays above the best of all.

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

std::optional<Plan> plan_within(const Problem& problem, const std::vector<Pass>& passes, Bytes budget) {
  const std::optional<Bytes> limit = budget;
  PlanOutcome outcome = plan(problem, passes, limit);
  if (!std::holds_alternative<Plan>(outcome)) return std::nullopt;
  return std::move(std::get<Plan>(outcome));
}

/// A random chain whose backwards read both boundary tensors: what a plan stores stays until its backward.
Chain persistent_chain(std::uint64_t seed) {
  Chain chain = random_small_chain(seed, 1 + seed % 9);
  for (Stage& stage : chain.stages) stage.keeps_input = stage.keeps_output = true;
  return chain;
}

TEST_CASE("rotor without slots is never slower than a chain strategy at any of its budgets", "[strategies][property]") {
  const std::vector<Pass> rotor = parse_spec("rotor(slots=exact)", "test");
  for (const std::string spec :
       {"chen_sqrt", "chen_greedy", "periodic", "full_recompute", "full_recompute(method=block,layers=auto)",
        "full_recompute(layers=auto)", "selective", "selective(every=auto,keep_every=auto)", "revolve",
        "revolve_hetero", "revolve_hetero(slots=6)", "rockmate", "rockmate(block=2,options=3)", "ap_greedy", "ap_sqrt",
        "greedy_recompute"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : fewer_cases(1, 120)) {
      const Problem problem = problem_of(persistent_chain(seed), gpus({}));
      for (const Bytes budget : front_budgets(problem, passes)) {
        CAPTURE(spec, seed, budget.count);
        const std::optional<Plan> plan = plan_within(problem, passes, budget);
        REQUIRE(plan);
        const std::optional<Plan> best = plan_within(problem, rotor, budget);
        REQUIRE(best);
        REQUIRE(best->makespan.value <= plan->makespan.value * (1 + 1e-12));
      }
    }
  }
}

TEST_CASE("fronts of solvers name every budget at which their answer changes", "[strategies][property][eleventh-2]") {
  struct Asked {
    std::string spec;
    std::uint64_t cases;
    std::size_t stages;  // at most
  };
  for (const auto& [spec, cases, stages] : std::vector<Asked>{{"exact", 40, 4},
                                                              {"rotor", 40, 4},
                                                              {"rotor_floating", 20, 4},
                                                              {"knapsack(solver=ilp)", 40, 4},
                                                              {"checkmate", 6, 2},
                                                              {"monet", 6, 2},
                                                              {"offload_exact", 20, 6}}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : fewer_cases(1, cases)) {
      const Problem problem =
          problem_of(random_small_chain(seed, 1 + seed % stages), gpus({.to_host = BytesPerSecond{2}}));
      const std::vector<Bytes> front = front_budgets(problem, passes);
      std::optional<Seconds> fastest;
      for (Bytes budget = front.front() - Bytes{1}; budget <= front.back() + Bytes{20}; budget += Bytes{1}) {
        CAPTURE(spec, seed, budget.count);
        const std::optional<Plan> plan = plan_within(problem, passes, budget);
        const bool is_named = std::ranges::find(front, budget) != front.end();
        if (is_named) {
          REQUIRE(plan);
          fastest = std::min(fastest.value_or(plan->makespan), plan->makespan);
        }
        REQUIRE(plan.has_value() == fastest.has_value());
        if (plan) REQUIRE(plan->makespan.value >= fastest->value * (1 - 1e-12));
      }
      const std::optional<Plan> all = plan_within(problem, passes, Bytes{1'000'000'000});
      REQUIRE(all->makespan.value >= fastest->value * (1 - 1e-12));
    }
  }
}

TEST_CASE("the worked example: what each chain strategy takes, and from which budget on", "[strategies]") {
  // Stages of 1 s, backwards of 2 s, a loss of 1 s: 7 s, 8 s with the first stage repeated, 9 s with both.
  struct Row {
    std::string spec;
    double seconds;  // of its fastest plan
  };
  const Problem problem = problem_of(worked_example(), gpus({}));
  for (const auto& [spec, seconds] : {Row{"chen_greedy", 7}, Row{"periodic", 7}, Row{"periodic(every=1)", 8},
                                      Row{"full_recompute", 9}, Row{"selective", 7}, Row{"selective(every=2)", 8},
                                      Row{"revolve", 9}, Row{"revolve_hetero", 9}, Row{"rotor_floating", 7}}) {
    CAPTURE(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const std::vector<Bytes> budgets = front_budgets(problem, passes);
    CHECK(plan_within(problem, passes, Bytes{1000})->makespan == Seconds{seconds});
    CHECK(plan_within(problem, passes, budgets.back())->makespan == Seconds{seconds});
    CHECK(budgets.front() >= Bytes{20});  // B of stage 1 alone
    CHECK(!plan_within(problem, passes, budgets.front() - Bytes{1}));
  }
}

}  // namespace
}  // namespace plimsoll
