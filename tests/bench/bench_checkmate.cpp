// Graph rematerialization: Checkmate's unit nets by search and by integer program, how far rounding is from the
// optimum, and a DenseNet-like training graph of 3,000 ops at half its memory.

#include <benchmark/benchmark.h>

#include <cmath>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"

namespace {

using namespace plimsoll;

Plan plan_of(const Problem& problem, const char* spec, std::optional<Bytes> budget) {
  return std::get<Plan>(plan(problem, parse_spec(spec, "bench"), budget));
}

/// v_1 .. v_n, a loss, g_n .. g_1, all of one second and one byte; g_i reads g_{i+1} and v_i.
Problem unit_net(std::size_t layers) {
  Graph graph;
  graph.name = "unit net";
  const auto add = [&graph](Phase phase, std::vector<TensorId> inputs) {
    const TensorKind kind = phase == Phase::forward ? TensorKind::activation : TensorKind::gradient;
    graph.tensors.push_back({.name = "t",
                             .kind = kind,
                             .bytes = Bytes{1},
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    Op op;
    op.name = "op";
    op.phase = phase;
    op.duration = Seconds{1};
    op.inputs = std::move(inputs);
    op.outputs = {id_at<TensorId>(graph.tensors.size() - 1)};
    graph.ops.push_back(op);
    return op.outputs.front();
  };
  std::vector<TensorId> v{add(Phase::forward, {})};
  while (v.size() < layers) v.push_back(add(Phase::forward, {v.back()}));
  TensorId g = add(Phase::forward, {v.back()});
  for (std::size_t i = layers; i-- > 0;) g = add(Phase::backward, {g, v[i]});
  return problem_of(graph, gpus({}));
}

void unit_net_at_four(benchmark::State& state, const char* spec) {
  const Problem problem = unit_net(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    const Plan made = plan_of(problem, spec, Bytes{4});
    state.counters["optimum"] = made.makespan.value;
    state.counters["gap"] = made.gap.value_or(1);
  }
}
BENCHMARK_CAPTURE(unit_net_at_four, exact, "exact")->Arg(8)->Arg(10)->Arg(12)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unit_net_at_four, tight, "checkmate")
    ->Arg(8)
    ->Arg(10)
    ->Arg(12)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unit_net_at_four, kappa, "checkmate(formulation=kappa)")
    ->Arg(8)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Ops of one to three implementations with random times and workspaces up to 7 bytes; checkmate takes the first.
void ways_at_twelve(benchmark::State& state, const char* spec) {
  const Problem problem =
      problem_of(with_alternatives(unit_net(static_cast<std::size_t>(state.range(0))).graph, 1), gpus({}));
  for (auto _ : state) {
    const Plan made = plan_of(problem, spec, Bytes{12});
    state.counters["makespan"] = made.makespan.value;
    state.counters["gap"] = made.gap.value_or(1);
  }
}
BENCHMARK_CAPTURE(ways_at_twelve, monet, "monet")->Arg(4)->Arg(8)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ways_at_twelve, checkmate, "checkmate")->Arg(4)->Arg(8)->Iterations(1)->Unit(benchmark::kMillisecond);

// The geometric mean of rounded over exact time, over random training graphs of 8 to 14 ops, at three budgets each.
void rounding_ratio(benchmark::State& state, const char* spec) {
  for (auto _ : state) {
    double logarithms = 0, worst = 1;
    int cases = 0;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      const Problem problem = problem_of(random_graph(seed, 4 + seed % 4), gpus({}));
      const Bytes peak = plan_of(problem, "store_all", {}).peak;
      for (const std::int64_t percent : {95, 85, 75}) {
        const std::optional<Bytes> budget{Bytes{peak.count * percent / 100}};
        const auto exact = plan(problem, parse_spec("exact", "bench"), budget);
        const auto rounded = plan(problem, parse_spec(spec, "bench"), budget);
        if (!std::holds_alternative<Plan>(exact) || !std::holds_alternative<Plan>(rounded)) {
          state.counters["not_found"] += std::holds_alternative<Plan>(exact) ? 1 : 0;
          continue;
        }
        const double ratio = std::get<Plan>(rounded).makespan / std::get<Plan>(exact).makespan;
        logarithms += std::log(ratio);
        worst = std::max(worst, ratio);
        ++cases;
      }
    }
    state.counters["cases"] = cases;
    state.counters["mean_ratio"] = std::exp(logarithms / cases);
    state.counters["worst_ratio"] = worst;
  }
}
BENCHMARK_CAPTURE(rounding_ratio, lp, "checkmate_lp")->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rounding_ratio, greedy, "greedy_recompute")->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rounding_ratio, ap, "ap_greedy(points=all)")->Iterations(1)->Unit(benchmark::kMillisecond);

void dense_at_half(benchmark::State& state, const char* spec) {
  const Problem problem = problem_of(dense_graph(dense_layers), gpus({}));
  const Plan plain = plan_of(problem, "store_all", {});
  for (auto _ : state) {
    const Plan made = plan_of(problem, spec, Bytes{plain.peak.count / 2});
    state.counters["overhead_percent"] = 100 * (made.makespan / plain.makespan - 1);
    state.counters["ops"] = static_cast<double>(problem.graph.ops.size());
  }
}
BENCHMARK_CAPTURE(dense_at_half, rockmate, "rockmate")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense_at_half, greedy, "greedy_recompute")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dense_at_half, ap, "ap_greedy(points=all)")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
