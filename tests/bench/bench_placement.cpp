// Placements of graphs of 10,000 to 300,000 ops on 8, 16 and 64 devices: planners, and what turns their answers into
// schedules, judges and simulates them.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <functional>
#include <map>
#include <variant>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/clusters/partitioners.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/lists/list_schedulers.h"
#include "strategies/placement/pardnn/pardnn.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic_graphs.h"

namespace {

using namespace plimsoll;

/// A training graph of about so many ops on devices of NVLink's speed, made once.
const Problem& problem_for(const benchmark::State& state) {
  static std::map<std::pair<std::int64_t, std::int64_t>, Problem> made;
  const std::pair size{state.range(0), state.range(1)};
  const auto found = made.find(size);
  if (found != made.end()) return found->second;
  made.clear();
  Problem problem = problem_of(synthetic_graph("trn:ops=" + std::to_string(size.first)),
                               gpus({.count = static_cast<std::uint32_t>(size.second),
                                     .to_peers = BytesPerSecond{150e9},
                                     .peer_latency = Seconds{25e-6}}));
  return made.emplace(size, std::move(problem)).first->second;
}

struct Placed {
  PlannedParts parts;
  Schedule schedule;
};

Placed placed_by(const Problem& problem, const char* spec) {
  const std::optional<Bytes> unlimited;
  Placed made;
  made.parts = std::get<PlannedParts>(plan_parts(problem, parse_spec(spec, "bench"), std::span(&unlimited, 1)).front());
  made.schedule = plan_of(problem, made.parts, unlimited).schedule;
  return made;
}

void report(benchmark::State& state) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["MB_at_most"] = static_cast<double>(usage.ru_maxrss) / 1e3;
}

void graph(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  for (auto _ : state) benchmark::DoNotOptimize(graph_dag(problem, static_cast<std::uint32_t>(state.range(1))));
  report(state);
}

void planner(benchmark::State& state, const std::function<PlacementOutcome(const OpDag&, const Machine&)>& place) {
  const Problem& problem = problem_for(state);
  const GraphDag of = graph_dag(problem, static_cast<std::uint32_t>(state.range(1)));
  const Machine machine = machine_of(problem, of, std::nullopt, 1);
  for (auto _ : state) benchmark::DoNotOptimize(place(of.dag, machine));
  report(state);
}

void pardnn(benchmark::State& state) {
  planner(state,
          [](const OpDag& dag, const Machine& m) { return place_pardnn(dag, m, {.memory = PardnnMemory::ignored}); });
}
void pardnn_balanced(benchmark::State& state) {
  planner(state,
          [](const OpDag& dag, const Machine& m) { return place_pardnn(dag, m, {.memory = PardnnMemory::balance}); });
}
void heft(benchmark::State& state) {
  planner(state, [](const OpDag& dag, const Machine& m) { return without_makespan(heft_schedule(dag, m)); });
}
void etf(benchmark::State& state) {
  planner(state, [](const OpDag& dag, const Machine& m) { return without_makespan(etf_schedule(dag, m)); });
}
void metis(benchmark::State& state) {
  planner(state, [](const OpDag& dag, const Machine& m) { return place_by_metis(dag, m, 1); });
}

/// With heuristic I, within 60 % of what it takes without.
void pardnn_within_memory(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  const Bytes peak = placed_by(problem, "pardnn(memory=none)").parts.peak;
  const GraphDag of = graph_dag(problem, static_cast<std::uint32_t>(state.range(1)));
  const Machine machine = machine_of(problem, of, Bytes{peak.count * 6 / 10}, 1);
  for (auto _ : state) benchmark::DoNotOptimize(place_pardnn(of.dag, machine, {}));
  report(state);
}

void automatic(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  for (auto _ : state) benchmark::DoNotOptimize(placed_by(problem, "auto"));
  report(state);
}

void lowering(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  const Placed of = placed_by(problem, "etf");
  for (auto _ : state) benchmark::DoNotOptimize(plan_of(problem, of.parts, std::nullopt));
  state.counters["steps"] = static_cast<double>(of.schedule.steps.size());
  report(state);
}

void judging(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  const Placed of = placed_by(problem, "etf");
  for (auto _ : state) {
    const std::vector<Violation> found = check(of.schedule, problem.graph, problem.platform);
    if (!found.empty()) state.SkipWithError(found[0].what.c_str());
  }
  report(state);
}

void writing(benchmark::State& state) {
  const Placed of = placed_by(problem_for(state), "etf");
  for (auto _ : state) benchmark::DoNotOptimize(schedule_text(of.schedule, "bench"));
  report(state);
}

void reading(benchmark::State& state) {
  const std::string text = schedule_text(placed_by(problem_for(state), "etf").schedule, "bench");
  for (auto _ : state) benchmark::DoNotOptimize(parse_schedule(text, "bench"));
  state.counters["MB_of_text"] = static_cast<double>(text.size()) / 1e6;
  report(state);
}

void event(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  const Placed of = placed_by(problem, "etf");
  for (auto _ : state) benchmark::DoNotOptimize(simulate_event(of.schedule, problem.platform));
  report(state);
}

void simgrid(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  const Placed of = placed_by(problem, "etf");
  for (auto _ : state) benchmark::DoNotOptimize(simulate_simgrid(of.schedule, problem.platform));
  report(state);
}

void bounds(benchmark::State& state) {
  const Problem& problem = problem_for(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(lower_bounds(problem, static_cast<std::size_t>(state.range(1))));
  }
  report(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t ops : {10'000, 100'000, 300'000}) {
    for (const std::int64_t devices : {8, 16, 64}) benchmark->Args({ops, devices});
  }
  benchmark->Unit(benchmark::kMillisecond);
}

void on_sixteen(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t ops : {10'000, 100'000, 300'000}) benchmark->Args({ops, 16});
  benchmark->Unit(benchmark::kMillisecond);
}

BENCHMARK(graph)->Apply(sizes);
BENCHMARK(pardnn)->Apply(sizes);
BENCHMARK(pardnn_within_memory)->Apply(on_sixteen);
BENCHMARK(pardnn_balanced)->Apply(on_sixteen);
BENCHMARK(heft)->Apply(sizes);
BENCHMARK(etf)->Apply(sizes);
BENCHMARK(metis)->Apply(sizes);
BENCHMARK(automatic)->Apply(on_sixteen);
BENCHMARK(lowering)->Apply(sizes);
BENCHMARK(judging)->Apply(sizes);
BENCHMARK(writing)->Apply(on_sixteen);
BENCHMARK(reading)->Apply(on_sixteen);
BENCHMARK(event)->Apply(sizes);
BENCHMARK(simgrid)->Apply(on_sixteen);
BENCHMARK(bounds)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
