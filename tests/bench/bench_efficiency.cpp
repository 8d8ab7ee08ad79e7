// Times of kernels by measured efficiencies: one look-up in a table of products, and all ops of a graph of 300,000.

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "platforms/efficiency_file.h"
#include "platforms/platform_file.h"
#include "sim/core/scaling.h"
#include "sim/ops/efficiency.h"
#include "traces/models/synthetic.h"

namespace {

using namespace plimsoll;

Device h100() {
  Device device = load_platform("h100_sxm_8").devices.front();
  device.efficiency = std::make_shared<const Efficiency>(load_efficiency("h100_sxm"));
  return device;
}

void table_look_up(benchmark::State& state) {
  const Device device = h100();
  const auto& efficiency = dynamic_cast<const Efficiency&>(*device.efficiency);
  std::mt19937 random(7);
  std::vector<GpuKernel> kernels;
  constexpr std::size_t count = 1024;
  while (kernels.size() < count) {
    const auto size = [&] { return std::floor(std::exp(std::uniform_real_distribution(4.0, 10.0)(random))); };
    kernels.push_back({.kind = KernelKind::product, .dtype = "bf16", .m = size(), .n = size(), .k = size()});
  }
  std::size_t k = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernel_time(efficiency, device, kernels[k], {Flops{1}, Bytes{1}}));
    k = (k + 1) % count;
  }
}
BENCHMARK(table_look_up);

void rescaled_graph(benchmark::State& state) {
  const Device device = h100();
  const Graph graph = std::get<Graph>(
      synthetic_model("transformer:view=graph,width=1024,heads=16,layers=" + std::to_string(state.range(0))));
  for (auto _ : state) {
    Seconds sum;
    for (const Op& op : graph.ops) sum += duration(graph, op, device, Saving::keep).value();
    benchmark::DoNotOptimize(sum);
  }
  state.counters["ops"] = static_cast<double>(graph.ops.size());
}
BENCHMARK(rescaled_graph)->Arg(10000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
