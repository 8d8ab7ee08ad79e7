// Dynamic tensor rematerialization at half of the baseline's memory: calls of the log a second, for every heuristic on
// logs of some 8,000 calls, for those with neighbourhoods at three sizes.

#include <benchmark/benchmark.h>

#include "strategies/rematerialization/dtr/dtr_runtime.h"
#include "tests/generate/op_logs.h"

namespace {

using namespace plimsoll;

void replay(benchmark::State& state, const OpLog& log, DtrHeuristic heuristic) {
  const Bytes half{dtr_baseline(log).memory.count / 2};
  DtrReplay replay;
  for (auto _ : state) {
    replay = replay_dtr_log(log, half, heuristic);
    benchmark::DoNotOptimize(replay);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(log.calls.size()));
  state.counters["calls"] = static_cast<double>(log.calls.size());
  state.counters["events"] = static_cast<double>(log.events.size());
  state.counters["finished"] = replay.run.end == DtrEnd::finished ? 1 : 0;
  state.counters["overhead"] = replay.overhead;
  state.counters["evictions"] = static_cast<double>(replay.run.evictions);
  state.counters["again"] = static_cast<double>(replay.run.rematerializations);
}

constexpr std::size_t calls = 8'000;

using enum DtrHeuristic;

void dense(benchmark::State& state, DtrHeuristic heuristic) {
  replay(state, dense_op_log(calls), heuristic);
}
void recurrent(benchmark::State& state, DtrHeuristic heuristic) {
  replay(state, recurrent_op_log(calls), heuristic);
}

void grown(benchmark::State& state, OpLog (*log)(std::size_t), DtrHeuristic heuristic) {
  replay(state, log(static_cast<std::size_t>(state.range(0))), heuristic);
}

BENCHMARK_CAPTURE(grown, dense_dtr, dense_op_log, dtr)
    ->Arg(2'000)
    ->Arg(8'000)
    ->Arg(32'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grown, dense_dtr_eq, dense_op_log, dtr_eq)
    ->Arg(2'000)
    ->Arg(8'000)
    ->Arg(32'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grown, recurrent_dtr, recurrent_op_log, dtr)
    ->Arg(2'000)
    ->Arg(8'000)
    ->Arg(31'800)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grown, recurrent_dtr_eq, recurrent_op_log, dtr_eq)
    ->Arg(2'000)
    ->Arg(8'000)
    ->Arg(31'800)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grown, linear_dtr, linear_op_log, dtr)
    ->Arg(1'500)
    ->Arg(6'000)
    ->Arg(24'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grown, linear_dtr_eq, linear_op_log, dtr_eq)
    ->Arg(1'500)
    ->Arg(6'000)
    ->Arg(24'000)
    ->Unit(benchmark::kMillisecond);
void sizes_of_joined(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1'000)->Arg(2'000)->Arg(4'000)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(grown, joined_dense_dtr, joined_dense_op_log, dtr)->Apply(sizes_of_joined);
BENCHMARK_CAPTURE(grown, joined_dense_dtr_eq, joined_dense_op_log, dtr_eq)->Apply(sizes_of_joined);
BENCHMARK_CAPTURE(grown, joined_recurrent_dtr, joined_recurrent_op_log, dtr)->Apply(sizes_of_joined);
BENCHMARK_CAPTURE(grown, joined_recurrent_dtr_eq, joined_recurrent_op_log, dtr_eq)->Apply(sizes_of_joined);
BENCHMARK_CAPTURE(dense, dtr, dtr)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, dtr_eq, dtr_eq)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, local, local)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, lru, lru)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, size, DtrHeuristic::size)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, msps, msps)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, dtr, dtr)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, dtr_eq, dtr_eq)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, local, local)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, lru, lru)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, size, DtrHeuristic::size)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recurrent, msps, msps)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
