#pragma once
// Pipelines of unequal stages, and what every plan of one must be.

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/lower_bounds.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "tests/generate/problems.h"

namespace plimsoll {

/// The chain with the i-th parameter in stage i only.
inline Chain with_own_parameters(Chain chain) {
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    Stage& stage = chain.stages[i];
    stage.parameters.clear();
    if (i < chain.parameters.size()) stage.parameters = {static_cast<std::uint32_t>(i)};
  }
  return chain;
}

/// The promise, held.
inline void judge_plan(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  const std::vector<Violation> violations = check(made.schedule, problem.graph, problem.platform);
  if (!violations.empty()) FAIL_CHECK(violations[0].what);
  const Timeline event = simulate_event(made.schedule, problem.platform);
  CHECK(event.makespan == made.makespan);
  CHECK(measure(problem, made.schedule, event).peak == made.peak);
  if (budget) CHECK(made.peak <= *budget);
  const std::vector<Bytes> counted = recount(made.schedule, event, problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == event.peaks[m].bytes);
  const Timeline simgrid = simulate_simgrid(made.schedule, problem.platform);
  CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-9));
  constexpr double rounding = 1e-12;  // the bound adds the same times in another order
  const Stays stays = stays_in(made.schedule, problem.graph, problem.platform);
  const LowerBounds bounds = lower_bounds(problem, devices_used(made.schedule), stays);
  CHECK(event.makespan.value >= (1 - rounding) * bounds.time().value);
}

/// The plans within budgets from the least to what the unlimited one takes, and that: each judged, none slower with
/// more. How many of them are slower than the unlimited one; nothing where there is a plan for no memory at all.
inline std::optional<std::size_t> judge_within_budgets(const Problem& problem, const std::vector<Pass>& passes) {
  const Plan all = std::get<Plan>(plan(problem, passes, std::nullopt));
  judge_plan(problem, all, std::nullopt);
  const PlanOutcome nothing = plan(problem, passes, Bytes{0});
  const auto* least = std::get_if<Infeasible>(&nothing);
  if (least == nullptr) return std::nullopt;
  REQUIRE(least->smallest.has_value());
  CHECK(*least->smallest <= all.peak);
  std::vector<std::optional<Bytes>> budgets;
  for (std::uint32_t step = 0; step <= 3; ++step) {
    budgets.emplace_back(*least->smallest + range_of(all.peak - *least->smallest, {step, 3}).offset);
  }
  budgets.back() = all.peak;
  budgets.emplace_back(std::nullopt);
  std::optional<Seconds> before;
  std::size_t b = 0, slower = 0;
  for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
    INFO("budget " << b << " of " << budgets.size() << ", at least " << least->smallest->count << " B");
    REQUIRE(std::holds_alternative<Plan>(outcome));
    const Plan& made = std::get<Plan>(outcome);
    judge_plan(problem, made, budgets[b]);
    if (before) CHECK(made.makespan <= *before);
    slower += made.makespan > all.makespan ? 1 : 0;
    before = made.makespan;
    ++b;
  }
  CHECK(*before <= all.makespan);
  return slower;
}

}  // namespace plimsoll
