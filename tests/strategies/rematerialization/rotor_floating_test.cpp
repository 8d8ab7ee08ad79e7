// Weak persistence: between the unrestricted optimum and rotor.

#include <catch2/catch.hpp>

#include "sim/io/input_error.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/rematerialization/rotor/rotor_floating.h"
#include "strategies/rematerialization/rotor/rotor_table.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"

namespace plimsoll {
namespace {

constexpr std::int64_t floating_slots = 2000;  // for the tests' small sizes: nothing is rounded

TEST_CASE("rotor_floating lies between the best of all sequences and rotor", "[floating][property]") {
  int budgets = 0, faster_than_rotor = 0, slower_than_best = 0;
  for (const RandomCase seed : fewer_cases(0, 399)) {
    const ChainModel model = random_chain_model({.stages = 1 + seed % 6}, seed);
    const FloatingTable floating(model, floating_slots);
    const ChainCost plain = evaluate(model, store_all_sequence(model.stages()));
    const RotorTable rotor(model, Bytes{1}, plain.peak);
    const double work = plain.time.value;
    std::vector<ChainCost> costs;
    for (std::size_t k = 0; k < floating.plans(); ++k) costs.push_back(evaluate(model, floating.plan(k)));
    for (std::int64_t budget = 0; budget <= plain.peak.count; ++budget) {
      CAPTURE(seed, budget);
      const std::optional<Seconds> recompute = floating.recompute(Bytes{budget});
      const std::optional<Seconds> persistent = rotor.recompute(Bytes{budget});
      REQUIRE((recompute || !persistent));
      if (!recompute) continue;
      ++budgets;
      const std::optional<double> best = unrestricted_optimum(model, budget);
      REQUIRE(best);
      REQUIRE(work + recompute->value >= *best);
      slower_than_best += work + recompute->value > *best ? 1 : 0;
      if (persistent) REQUIRE(recompute->value <= persistent->value);
      faster_than_rotor += !persistent || recompute->value < persistent->value ? 1 : 0;
      const bool kept = std::ranges::any_of(costs, [&](const ChainCost& cost) {
        return cost.legal() && cost.peak <= Bytes{budget} && cost.time.value <= work + recompute->value;
      });
      REQUIRE(kept);
    }
  }
  WARN(budgets << " budgets, faster than rotor at " << faster_than_rotor << ", slower than the best of all at "
               << slower_than_best);
  if (all_cases()) CHECK(budgets > cases_of(2000));
}

TEST_CASE("rotor_floating with few slots is never slower than rotor, rounded or not",
          "[floating][property][eleventh-6]") {
  const std::vector<Pass> floating = parse_spec("rotor_floating(slots=7)", "test");
  for (const std::string spec : {"rotor", "rotor(slots=7)", "rotor(slots=500)"}) {
    const std::vector<Pass> rotor = parse_spec(spec, "test");
    for (const RandomCase seed : random_cases(0, 59)) {
      const Problem problem = problem_of(random_small_chain(seed, 1 + seed % 9), gpus({}));
      for (const Bytes budget : front_budgets(problem, rotor)) {
        CAPTURE(spec, seed, budget.count);
        const std::optional<Bytes> limit = budget;
        const PlanOutcome slow = plan(problem, rotor, limit);
        const PlanOutcome fast = plan(problem, floating, limit);
        if (!std::holds_alternative<Plan>(slow)) continue;
        REQUIRE(std::holds_alternative<Plan>(fast));
        REQUIRE(std::get<Plan>(fast).makespan.value <= std::get<Plan>(slow).makespan.value * (1 + 1e-12));
      }
    }
  }
}

TEST_CASE("rotor_floating refuses long chains and says what takes them", "[floating]") {
  const Problem problem = problem_of(even_chain(40), gpus({}));
  const std::optional<Bytes> unlimited;
  try {
    plan(problem, parse_spec("rotor_floating", "test"), std::span(&unlimited, 1));
    FAIL("no complaint");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "strategy 'rotor_floating' takes chains of up to 40 stages, and '" +
                                           problem.graph.name + "' has 41; 'rotor' takes any");
  }
}

}  // namespace
}  // namespace plimsoll
