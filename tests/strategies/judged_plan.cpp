#include "tests/strategies/judged_plan.h"

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/spec.h"
#include "tests/generate/bound_of_schedule.h"

namespace plimsoll {
namespace {

/// As the transforms among the passes change it, if they have not yet.
Problem changed(const Problem& problem, std::span<const Pass> passes) {
  return problem.transformed ? problem : transformed(problem, passes);
}

}  // namespace

PlanOutcome plan_one(const Problem& problem, std::string_view spec, std::optional<Bytes> budget) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  return plan(changed(problem, passes), passes, budget);
}

Plan planned(const Problem& problem, std::string_view spec, std::optional<Bytes> budget) {
  PlanOutcome outcome = plan_one(problem, spec, budget);
  INFO(spec);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(std::move(outcome));
}

Bytes smallest(const Problem& problem, std::string_view spec) {
  return std::get<Infeasible>(plan_one(problem, spec, Bytes{-1})).smallest.value();
}

Plan judged(const Problem& problem, std::string_view spec, std::optional<Bytes> budget) {
  Plan made = planned(problem, spec, budget);
  INFO(spec);
  judge(changed(problem, parse_spec(spec, "test")), made, budget);
  return made;
}

void judge(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  const std::vector<Violation> found = check(made.schedule, problem.graph, problem.platform, 1);
  INFO((found.empty() ? std::string() : found[0].what));
  REQUIRE(found.empty());
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.makespan == made.makespan);
  CHECK(timeline.peaks[0].bytes == made.peak);
  CHECK(recount(made.schedule, timeline, problem.platform)[0] == made.peak);
  CHECK((!budget || made.peak <= *budget));
  const LowerBounds bounds =
      lower_bounds(problem, 1, stays_in(made.schedule, problem.graph, problem.platform), made.schedule.codecs);
  CHECK(made.makespan.value >= bounds.time().value * (1 - 1e-12));
  CHECK(made.peak >= bounds.memory);
  CHECK(made.makespan.value >= bound_of(problem, made.schedule, made.peak).value * (1 - 1e-12));
}

}  // namespace plimsoll
