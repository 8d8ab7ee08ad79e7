// Bounds by an instant: one budget from the problem on, and all bends of the front, of training graphs at 40 % of the
// peak at their loss.

#include <benchmark/benchmark.h>

#include "sim/bound/iteration_bound.h"
#include "sim/bound/snapshot_cut.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic_graphs.h"

namespace {

using namespace plimsoll;

Problem problem_of_ops(std::int64_t ops) {
  return problem_of(synthetic_graph("trn:ops=" + std::to_string(ops)), gpus({.to_host = BytesPerSecond{57e9}}));
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

}  // namespace
