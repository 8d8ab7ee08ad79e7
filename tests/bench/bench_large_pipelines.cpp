// Large pipelines: planning, lowering, judging and simulating interleaved 1F1B of p devices, m micro-batches and v
// parts a device, and of pipelines on devices that all talk to each other.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <variant>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"

namespace {

using namespace plimsoll;

struct Large {
  Problem problem;
  PlannedParts parts;
  Schedule schedule;
};

Large interleaved(const benchmark::State& state) {
  const auto p = static_cast<std::uint32_t>(state.range(0)), m = static_cast<std::uint32_t>(state.range(1)),
             v = static_cast<std::uint32_t>(state.range(2));
  const std::vector<Pass> passes = parse_spec("interleaved(chunks=" + std::to_string(v) + ")", "bench");
  Large made{problem_of(even_chain(std::size_t{p} * v - 1), gpus({.count = p, .to_peers = BytesPerSecond{1e3}}),
                        {.micro_batches = m}),
             {},
             {}};
  const std::optional<Bytes> unlimited;
  made.parts = std::get<PlannedParts>(plan_parts(made.problem, passes, std::span(&unlimited, 1)).front());
  made.schedule = plan_of(made.problem, made.parts, unlimited).schedule;
  return made;
}

void report(benchmark::State& state, const Schedule& schedule) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["steps"] = static_cast<double>(schedule.steps.size());
  state.counters["MB_at_most"] = static_cast<double>(usage.ru_maxrss) / 1e3;
}

void lowering(benchmark::State& state) {
  const Large of = interleaved(state);
  for (auto _ : state) benchmark::DoNotOptimize(plan_of(of.problem, of.parts, std::nullopt));
  report(state, of.schedule);
}

void judging(benchmark::State& state) {
  const Large of = interleaved(state);
  for (auto _ : state) benchmark::DoNotOptimize(check(of.schedule, of.problem.graph, of.problem.platform));
  report(state, of.schedule);
}

void event(benchmark::State& state) {
  const Large of = interleaved(state);
  for (auto _ : state) benchmark::DoNotOptimize(simulate_event(of.schedule, of.problem.platform));
  report(state, of.schedule);
}

void simgrid(benchmark::State& state) {
  const Large of = interleaved(state);
  for (auto _ : state) benchmark::DoNotOptimize(simulate_simgrid(of.schedule, of.problem.platform));
  report(state, of.schedule);
}

/// As many rows of ops as devices, each op on another device than the one before: every device sends to every other.
void judging_all_talk(benchmark::State& state) {
  const auto devices = static_cast<std::uint32_t>(state.range(0)), rounds = static_cast<std::uint32_t>(state.range(1));
  Graph graph;
  graph.name = "rows";
  Partition partition;
  partition.parts.resize(devices);
  partition.order.resize(devices);
  std::vector<Tape> tapes(devices);
  const auto tensor = [&](TensorKind kind) {
    graph.tensors.push_back({.name = "t" + std::to_string(graph.storages),
                             .kind = kind,
                             .bytes = Bytes{4},
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  std::vector<TensorId> last(devices);
  for (TensorId& t : last) t = tensor(TensorKind::input);
  for (std::uint32_t k = 0; k < rounds; ++k) {
    const auto device_at = [&](std::uint32_t row, std::uint32_t round) {
      return (row + round * (round + 1) / 2) % devices;  // each round sends one device further
    };
    for (std::uint32_t row = 0; row < devices; ++row) {
      const std::uint32_t here = device_at(row, k), next = device_at(row, k + 1);
      std::vector<Action>& actions = tapes[here].actions;
      if (k > 0 && device_at(row, k - 1) != here) actions.push_back(on_tensor(ActionKind::receive, last[row]));
      Op op;
      op.name = "o" + std::to_string(graph.ops.size());
      op.duration = Seconds{1};
      op.inputs = {last[row]};
      last[row] = tensor(TensorKind::activation);
      op.outputs = {last[row]};
      partition.parts[here].ops.push_back(id_at<OpId>(graph.ops.size()));
      actions.push_back(run(id_at<OpId>(graph.ops.size())));
      graph.ops.push_back(op);
      if (k + 1 < rounds && next != here) actions.push_back(on_tensor(ActionKind::send, last[row], PartId{next}));
    }
  }
  const Problem problem = problem_of(graph, gpus({.count = devices, .to_peers = BytesPerSecond{1e3}}));
  for (std::uint32_t d = 0; d < devices; ++d) {
    partition.parts[d].device = DeviceId{d};
    partition.order[d] = {{PartId{d}, 0, 0}};
    tapes[d] = with_drops(problem.graph, tapes[d]);
  }
  const auto schedule = std::get<Schedule>(lower(problem, partition, tapes));
  for (auto _ : state) {
    const std::vector<Violation> found = check(schedule, problem.graph, problem.platform);
    if (!found.empty()) state.SkipWithError(found[0].what.c_str());
  }
  report(state, schedule);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({16, 128, 4})->Args({32, 256, 4})->Args({64, 512, 4})->Unit(benchmark::kMillisecond);
}
BENCHMARK(lowering)->Apply(sizes);
BENCHMARK(judging)->Apply(sizes);
BENCHMARK(event)->Apply(sizes);
BENCHMARK(simgrid)->Apply(sizes);
BENCHMARK(judging_all_talk)->Args({16, 600})->Args({64, 600})->Args({64, 2400})->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
