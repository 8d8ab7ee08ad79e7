// Planning offloads on a DenseNet-like graph of some 3,000 ops, at half of plain training's memory, over PCIe 3; pofo
// on random chains.

#include <benchmark/benchmark.h>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic.h"

namespace {

using namespace plimsoll;

PlanOutcome plan_one(const Problem& problem, const char* spec, std::optional<Bytes> budget) {
  return plan(problem, parse_spec(spec, "bench"), budget);
}

/// At the strategy's own least memory where that is more than half.
void dense(benchmark::State& state, const char* spec, const std::array<std::size_t, 4>& layers = dense_layers) {
  const Problem problem = problem_of(dense_graph(layers), gpus({.to_host = BytesPerSecond{12e9}}));
  const Plan plain = std::get<Plan>(plan_one(problem, "store_all", {}));
  Bytes budget{plain.peak.count / 2};
  const PlanOutcome half = plan_one(problem, spec, budget);
  if (const Infeasible* none = std::get_if<Infeasible>(&half)) budget = none->smallest.value();
  for (auto _ : state) {
    const PlanOutcome made = plan_one(problem, spec, budget);
    state.counters["overhead_percent"] = 100 * (std::get<Plan>(made).makespan / plain.makespan - 1);
    state.counters["memory_percent"] =
        100.0 * static_cast<double>(budget.count) / static_cast<double>(plain.peak.count);
    state.counters["ops"] = static_cast<double>(problem.graph.ops.size());
  }
}
BENCHMARK_CAPTURE(dense, save_on_cpu, "save_on_cpu")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, vdnn, "vdnn")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, superneurons, "superneurons")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, capuchin, "capuchin")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, greedy, "offload_greedy")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, poet, "poet")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense, poet_10000, "poet", std::array<std::size_t, 4>{12, 24, 96, 64})->Unit(benchmark::kMillisecond);

/// At half of plain training's memory, or rotor's least, over a link that would move all of plain training's in the
/// time it takes.
void chain(benchmark::State& state) {
  const Chain random = random_chain({.stages = static_cast<std::uint32_t>(state.range(0)) - 1, .seed = 3});
  const Problem fast = problem_of(random, gpus({}));
  const Plan plain = std::get<Plan>(plan_one(fast, "store_all", {}));
  const double bandwidth = static_cast<double>(plain.peak.count) / plain.makespan.value;
  const Problem problem = problem_of(random, gpus({.to_host = BytesPerSecond{bandwidth}}));
  const std::string spec = "pofo(slots=" + std::to_string(state.range(1)) + ")";
  Bytes budget{plain.peak.count / 2};
  const PlanOutcome half = plan_one(problem, "rotor", budget);
  if (const Infeasible* none = std::get_if<Infeasible>(&half)) budget = none->smallest.value();
  for (auto _ : state) {
    const Plan made = std::get<Plan>(plan_one(problem, spec.c_str(), budget));
    state.counters["overhead_percent"] = 100 * (made.makespan / plain.makespan - 1);
    state.counters["gap_percent"] = 100 * made.gap.value();
  }
}
BENCHMARK(chain)
    ->Args({25, 50})
    ->Args({50, 50})
    ->Args({100, 50})
    ->Args({50, 100})
    ->Args({100, 100})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
