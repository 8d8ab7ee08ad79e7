#pragma once
// Pipelines of unequal stages, and what every plan of one must be.

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/check.h"
#include "sim/core/lower_bounds.h"
#include "sim/core/metrics.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "strategies/plan.h"
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
  CHECK(event.makespan.value >= (1 - rounding) * lower_bounds(problem, devices_used(made.schedule)).time().value);
}

}  // namespace plimsoll
