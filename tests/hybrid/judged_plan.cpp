#include "tests/hybrid/judged_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "strategies/compose/transformed.h"
#include "traces/models/synthetic.h"

namespace plimsoll {

Problem problem_on(std::variant<Chain, Graph> model, const std::string& platform, std::uint32_t micro_batches,
                   std::string_view spec, Optimizer optimizer) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  auto made = make_problem(std::move(model), load_platform(platform),
                           {.micro_batches = micro_batches, .optimizer = optimizer, .backward = backward_for(passes)});
  REQUIRE(std::holds_alternative<Problem>(made));
  return transformed(std::get<Problem>(std::move(made)), passes);
}

Problem problem_on(const std::string& trace, const std::string& platform, std::uint32_t micro_batches,
                   std::string_view spec, Optimizer optimizer) {
  return problem_on(synthetic_model(trace), platform, micro_batches, spec, optimizer);
}

Plan judged_plan(const Problem& problem, std::string_view spec, std::optional<Bytes> budget) {
  PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  Plan made = std::get<Plan>(std::move(outcome));
  for (const Violation& found : check(made.schedule, problem.graph, problem.platform)) FAIL_CHECK(found.what);
  const Timeline event = simulate_event(made.schedule, problem.platform),
                 reference = simulate_simgrid(made.schedule, problem.platform);
  CHECK(event.makespan.value == Approx(reference.makespan.value).epsilon(1e-9));
  CHECK(event.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  Bytes peak;
  for (const Device& device : problem.platform.devices) peak = std::max(peak, event.peaks[device.memory.index].bytes);
  CHECK(peak == made.peak);
  return made;
}

}  // namespace plimsoll
