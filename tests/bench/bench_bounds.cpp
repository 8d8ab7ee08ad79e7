// Bounds by an instant, one budget from the problem on, and all bends of the front, of training graphs at 40 % of the
// peak at their loss; plans of `snapshot` at the same.

#include <benchmark/benchmark.h>

#include <utility>
#include <variant>
#include <vector>

#include "sim/bound/iteration_bound.h"
#include "sim/bound/snapshot_cut.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"

namespace {

using namespace plimsoll;

/// Equal layers of eight ops, every other one of which takes ten times as long, with a way past each half of them, and
/// as many backwards, each of which reads what its forward has read.
Graph layered_graph(std::int64_t ops) {
  Graph graph;
  graph.name = "layers";
  const auto add = [&](Phase phase, std::size_t place, std::vector<TensorId> reads) {
    const TensorKind kind = phase == Phase::forward ? TensorKind::activation : TensorKind::gradient;
    const auto bytes = static_cast<std::int64_t>(16'000'000 + 8'000'000 * (place % 5));
    graph.tensors.push_back(
        {.name = "t", .kind = kind, .bytes = Bytes{bytes}, .storage = id_at<StorageId>(graph.storages++)});
    const TensorId made = id_at<TensorId>(graph.tensors.size() - 1);
    graph.ops.push_back({.name = "o",
                         .phase = phase,
                         .duration = Seconds{place % 2 == 0 ? 1e-4 : 1e-3},
                         .inputs = std::move(reads),
                         .outputs = {made}});
    return made;
  };
  std::vector<std::vector<TensorId>> read;  // by forward
  TensorId last = add(Phase::forward, 0, {}), passing = last;
  for (std::size_t o = 1; o < static_cast<std::size_t>(ops) / 2; ++o) {
    read.push_back({last});
    if (o % 4 == 0) read.back().push_back(std::exchange(passing, last));
    last = add(Phase::forward, o, read.back());
  }
  TensorId gradient = add(Phase::backward, 0, {last});
  for (std::size_t o = read.size(); o-- > 0;) {
    read[o].push_back(gradient);
    gradient = add(Phase::backward, o, read[o]);
  }
  return graph;
}

Problem problem_of_ops(std::int64_t ops) {
  return problem_of(layered_graph(ops), gpus({.to_host = BytesPerSecond{57e9}}));
}

OpId last_forward(const Problem& problem) {
  OpId last{};
  for (std::uint32_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (problem.graph.ops[o].phase == Phase::forward && !problem.graph.ops[o].is_view) last = {o};
  }
  return last;
}

Bytes two_fifths(const Problem& problem) {
  const SnapshotModel model = snapshot_model(problem, DeviceId{0});
  SnapshotCuts cuts(model, instant_at(model, last_forward(problem)));
  return {(cuts.instant().bytes + cuts.at(0).kept_bytes).count * 2 / 5};
}

void one_budget(benchmark::State& state, bool copies) {
  const Problem problem = problem_of_ops(state.range(0));
  const Bytes budget = two_fifths(problem);
  const BytesPerSecond out = copies ? ways_out(problem.platform, DeviceId{0}) : BytesPerSecond{};
  for (auto _ : state) {
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.out = out});
    SnapshotCuts cuts(model, instant_at(model, last_forward(problem)));
    const InstantBound bound = cuts.bound(budget);
    state.counters["ops"] = static_cast<double>(problem.graph.ops.size());
    state.counters["extra_percent"] = 100 * (bound.extra / model.base);
  }
}
BENCHMARK_CAPTURE(one_budget, recomputing, false)->Arg(4'555)->Arg(50'000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_budget, copying, true)->Arg(4'555)->Arg(50'000)->Unit(benchmark::kMillisecond);

void whole_front(benchmark::State& state) {
  const Problem problem = problem_of_ops(state.range(0));
  const SnapshotModel model = snapshot_model(problem, DeviceId{0});
  for (auto _ : state) {
    SnapshotCuts cuts(model, instant_at(model, last_forward(problem)));
    state.counters["bends"] = static_cast<double>(cuts.front().size());
  }
}
BENCHMARK(whole_front)->Arg(4'555)->Arg(50'000)->Unit(benchmark::kMillisecond);

void planned(benchmark::State& state, const char* spec) {
  const Problem problem = problem_of_ops(state.range(0));
  const Bytes budget = two_fifths(problem);
  const std::vector<Pass> passes = parse_spec(spec, "bench_bounds");
  for (auto _ : state) {
    const PlanOutcome outcome = plan(problem, passes, budget);
    const Plan* made = std::get_if<Plan>(&outcome);
    if (made == nullptr) return state.SkipWithError("no plan");
    state.counters["gap_percent"] = 100 * made->gap.value_or(1);
  }
}
BENCHMARK_CAPTURE(planned, recomputing, "snapshot(offload=no)")
    ->Arg(4'555)
    ->Arg(50'000)
    ->Arg(300'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(planned, copying, "snapshot")->Arg(4'555)->Arg(50'000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
