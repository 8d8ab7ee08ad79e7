// Steps per second of both engines on the workload "train"; CPU time, children included.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "tests/bench/cpu_seconds.h"
#include "tests/generate/train_workload.h"

namespace {

using namespace plimsoll;

/// About this many steps: whole iterations of 50 layers, or fewer layers of one.
TrainWorkload workload(std::int64_t gpus, std::int64_t steps) {
  const std::int64_t an_iteration = gpus * 50 * 5;
  TrainWorkload chosen{.gpus = static_cast<std::uint32_t>(gpus)};
  chosen.iterations = static_cast<std::uint32_t>(std::max<std::int64_t>(1, steps / an_iteration));
  if (an_iteration > steps) chosen.layers = static_cast<std::uint32_t>(std::max<std::int64_t>(1, steps / (gpus * 5)));
  return chosen;
}

void report(benchmark::State& state, std::size_t steps, double cpu) {
  const double total = static_cast<double>(steps) * static_cast<double>(state.iterations());
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["steps/s"] = total / cpu;
  state.counters["ns/step"] = 1e9 * cpu / total;
}

template <class Simulate>
void measure(benchmark::State& state, const TrainWorkload& chosen, Simulate simulate) {
  const Platform platform = train_platform(chosen);
  const Schedule schedule = train_schedule(chosen);
  const double before = cpu_seconds();
  for (auto _ : state) benchmark::DoNotOptimize(simulate(schedule, platform));
  report(state, schedule.steps.size(), cpu_seconds() - before);
}

void event(benchmark::State& state) {
  measure(state, workload(state.range(0), state.range(1)),
          [](const Schedule& s, const Platform& p) { return simulate_event(s, p); });
}

void event_alike(benchmark::State& state) {
  TrainWorkload chosen = workload(state.range(0), state.range(1));
  chosen.alike = true;
  measure(state, chosen, [](const Schedule& s, const Platform& p) { return simulate_event(s, p); });
}

/// Without flattening the schedule.
void event_run(benchmark::State& state) {
  const TrainWorkload chosen = workload(state.range(0), state.range(1));
  const Program program = flatten(train_schedule(chosen), train_platform(chosen));
  const double before = cpu_seconds();
  for (auto _ : state) benchmark::DoNotOptimize(simulate_event(program));
  report(state, program.step_count(), cpu_seconds() - before);
}

/// Flattening alone.
void flattening(benchmark::State& state) {
  measure(state, workload(state.range(0), state.range(1)),
          [](const Schedule& s, const Platform& p) { return flatten(s, p); });
}

/// Simulations a second of all threads together: each simulates for itself.
void event_threads(benchmark::State& state) {
  const TrainWorkload chosen = workload(state.range(0), state.range(1));
  const Platform platform = train_platform(chosen);
  const Schedule schedule = train_schedule(chosen);
  for (auto _ : state) benchmark::DoNotOptimize(simulate_event(schedule, platform));
  state.SetItemsProcessed(state.iterations());
}

void simgrid(benchmark::State& state) {
  measure(state, workload(state.range(0), state.range(1)), simulate_simgrid);
}

/// CPU of the forkserver is not seen from here until it ends: wall time, hence on an idle machine only.
void simgrid_forkserver(benchmark::State& state) {
  SimgridForkserver server;
  const TrainWorkload chosen = workload(state.range(0), state.range(1));
  const Platform platform = train_platform(chosen);
  const Schedule schedule = train_schedule(chosen);
  for (auto _ : state) benchmark::DoNotOptimize(server.simulate(schedule, platform));
  state.counters["simulations/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t gpus : {1, 8, 64, 1024}) {
    for (const std::int64_t steps : {10'000, 100'000}) benchmark->Args({gpus, steps});
  }
  benchmark->Args({8, 1'000'000});
}

BENCHMARK(event)->Apply(sizes)->Unit(benchmark::kMillisecond);
BENCHMARK(event_alike)->Args({8, 100'000})->Args({1024, 100'000})->Unit(benchmark::kMillisecond);
BENCHMARK(event_run)->Args({8, 100'000})->Args({1024, 100'000})->Unit(benchmark::kMillisecond);
BENCHMARK(flattening)->Args({8, 2'000})->Args({8, 100'000})->Unit(benchmark::kMillisecond);
BENCHMARK(simgrid)->Apply(sizes)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(event)->Name("event_small")->Args({8, 2'000})->Unit(benchmark::kMillisecond);
BENCHMARK(event_threads)->Args({8, 2'000})->Threads(1)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(simgrid)->Name("simgrid_small")->Args({8, 2'000})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(simgrid_forkserver)->Args({8, 2'000})->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
