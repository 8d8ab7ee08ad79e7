#include "tests/hybrid/judged_time.h"

#include <catch2/catch.hpp>

#include <optional>
#include <variant>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"

namespace plimsoll {

Seconds judged_time(const Problem& problem, std::string_view spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem split = transformed(problem, passes);
  PlanOutcome outcome = plan(split, passes, std::nullopt);
  const Plan& made = std::get<Plan>(outcome);
  for (const Violation& found : check(made.schedule, split.graph, split.platform)) FAIL_CHECK(found.what);
  return simulate_event(made.schedule, split.platform).makespan;
}

}  // namespace plimsoll
