// The worked example of the architecture page, which every tool must get.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/lower_bounds.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

struct Result {
  Seconds makespan;
  Bytes peak;
};

std::optional<Result> run(const Problem& problem, const std::string& spec, std::optional<Bytes> budget) {
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  const Plan* made = std::get_if<Plan>(&outcome);
  if (made == nullptr) return std::nullopt;
  CHECK(check(made->schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(made->schedule, problem.platform);
  const Metrics metrics = measure(problem, made->schedule, timeline);
  CHECK(metrics.peak == made->peak);
  CHECK(metrics.makespan.value == Approx(made->makespan.value).epsilon(1e-12));
  return Result{metrics.makespan, metrics.peak};
}

TEST_CASE("the worked example: store_all takes 7 s and 22 bytes, in the backward of stage 2", "[strategies]") {
  const Problem problem = problem_of(worked_example(), gpus({}));
  // F1 1 s, F2 1 s, loss 1 s, B2 2 s, B1 2 s. In B2: x_0 4 + saved 7 + 5 + its output gradient 2 + its input
  // gradient 3 + workspace 1 = 22.
  const std::optional<Result> result = run(problem, "store_all", std::nullopt);
  REQUIRE(result);
  CHECK(result->makespan == Seconds{7});
  CHECK(result->peak == Bytes{22});
  CHECK(!run(problem, "store_all", Bytes{21}));
}

TEST_CASE("the worked example: rotor takes 7 s from 22 bytes on, 8 s at 20 and 21, and nothing below", "[strategies]") {
  const Problem problem = problem_of(worked_example(), gpus({}));
  for (const std::string spec : {"rotor", "rotor(slots=500)", "rotor(slots=exact)"}) {
    INFO(spec);
    for (const std::int64_t budget : {22, 23, 1000}) {
      const std::optional<Result> result = run(problem, spec, Bytes{budget});
      REQUIRE(result);
      CHECK(result->makespan == Seconds{7});
    }
    for (const std::int64_t budget : {20, 21}) {
      const std::optional<Result> result = run(problem, spec, Bytes{budget});
      REQUIRE(result);
      CHECK(result->makespan == Seconds{8});
      CHECK(result->peak <= Bytes{budget});
    }
    const std::optional<Bytes> too_little = Bytes{19};
    const PlanOutcome none = plan(problem, parse_spec(spec, "test"), too_little);
    REQUIRE(std::holds_alternative<Infeasible>(none));
    CHECK(std::get<Infeasible>(none).smallest == Bytes{20});
  }
}

TEST_CASE("the worked example's lower bounds are its work and its largest working set", "[strategies]") {
  const Problem problem = problem_of(worked_example(), gpus({}));
  const LowerBounds bounds = lower_bounds(problem, 1);
  CHECK(bounds.work == Seconds{7});
  CHECK(bounds.critical_path == Seconds{7});
  // B of stage 1: x_0 4 + saved 7 + output gradient 3 + input gradient 4 + workspace 2.
  CHECK(bounds.memory == Bytes{20});
  REQUIRE(bounds.memory_by);
  CHECK(problem.graph[*bounds.memory_by].name == "first backward");
}

}  // namespace
}  // namespace plimsoll
