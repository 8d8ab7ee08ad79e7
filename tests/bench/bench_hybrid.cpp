// Splits of transformers among many devices: the searches by themselves, without what is planned behind them.

#include <benchmark/benchmark.h>

#include <string>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic.h"

namespace {

using namespace plimsoll;

/// Devices of an A100's rates, each on a switch of its own 230 GB/s link: searches ask for the way to a neighbour.
Platform many(std::uint32_t count) {
  Platform platform = gpus({.count = count, .to_host = {25e9}, .to_peers = BytesPerSecond{230e9}});
  for (Device& device : platform.devices) {
    device.peak["bf16"] = {312e12};
    device.memory_bandwidth = {2039e9};
    device.launch_overhead = Seconds{3e-6};
    device.takes_trace_times = false;
    device.node = device.memory.index / 8;
  }
  return platform;
}

Problem transformer_on(std::int64_t layers, std::uint32_t devices) {
  auto made = make_problem(
      synthetic_model("transformer:width=12288,heads=96,sequence=2048,batch=1024,vocabulary=51200,view=graph,layers=" +
                      std::to_string(layers)),
      many(devices), {});
  return std::get<Problem>(std::move(made));
}

/// Model, search and graph of a rank.
void search(benchmark::State& state, const char* spec) {
  const Problem problem = transformer_on(state.range(0), static_cast<std::uint32_t>(state.range(1)));
  const std::vector<Pass> passes = parse_spec(spec, "bench");
  for (auto _ : state) {
    benchmark::DoNotOptimize(transformed(problem, passes));
  }
  state.counters["ops"] = static_cast<double>(problem.graph.ops.size());
}

void hsm2dl(benchmark::State& state) {
  search(state, "hsm2dl");
}
void tofu(benchmark::State& state) {
  search(state, "tofu");
}
void optcnn(benchmark::State& state) {
  search(state, "optcnn");
}
/// Not ended by its limit of a minute.
void alpa(benchmark::State& state) {
  search(state, "alpa(seconds=3600)");
}

BENCHMARK(hsm2dl)
    ->Args({32, 1024})
    ->Args({96, 1024})
    ->Args({288, 1024})
    ->Args({12, 64})
    ->Args({24, 64})
    ->Args({96, 64})
    ->Args({96, 256})
    ->Args({96, 4096})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(tofu)->Args({96, 64})->Args({96, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(optcnn)->Args({1, 64})->Args({96, 64})->Unit(benchmark::kMillisecond);
BENCHMARK(alpa)
    ->Args({1, 64})
    ->Args({12, 64})
    ->Args({24, 64})
    ->Args({96, 64})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
