// Planning what waits packed, in graphs of transformers of some 3,000 and 10,000 ops on an H200, at 80 % of plain
// training's memory; and what simulating a step costs with packed forms and without.

#include <benchmark/benchmark.h>

#include <string>

#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"

namespace {

using namespace plimsoll;

Problem transformer(std::int64_t layers) {
  return problem_of(load_model("gpt:layers=" + std::to_string(layers) + ",view=graph").model, load_platform("h200"));
}

Plan planned(const Problem& problem, const char* spec, std::optional<Bytes> budget) {
  return std::get<Plan>(plan(problem, parse_spec(spec, "bench"), budget));
}

void planning(benchmark::State& state, const char* spec) {
  const Problem problem = transformer(state.range(0));
  const Bytes budget{planned(problem, "store_all", std::nullopt).peak.count * 4 / 5};
  for (auto _ : state) {
    const Plan made = planned(problem, spec, budget);
    state.counters["steps"] = static_cast<double>(made.schedule.steps.size());
  }
}
BENCHMARK_CAPTURE(planning, quantize, "quantize")->Arg(85)->Arg(285)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planning, mesa, "mesa")->Arg(85)->Arg(285)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planning, compress_plan, "compress_plan(error=0.5)")
    ->Arg(30)
    ->Arg(85)
    ->Arg(285)
    ->Unit(benchmark::kMillisecond);

void simulating(benchmark::State& state, const char* spec) {
  const Problem problem = transformer(85);
  const Plan made = planned(problem, spec, std::nullopt);
  for (auto _ : state) benchmark::DoNotOptimize(simulate_event(made.schedule, problem.platform));
  const auto steps = static_cast<double>(made.schedule.steps.size());
  state.counters["steps"] = steps;
  state.counters["a_step"] =
      benchmark::Counter(steps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(simulating, plain, "store_all");
BENCHMARK_CAPTURE(simulating, packed, "quantize");

}  // namespace

BENCHMARK_MAIN();
