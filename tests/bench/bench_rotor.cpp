// Building rotor's tables and fronts: random chains with sizes of megabytes, none of them round; and the published
// program, literally, at the same slots and budget. `--benchmark_filter=at_the_same_slots` runs just those two.

#include <benchmark/benchmark.h>

#include <random>

#include "strategies/rematerialization/rotor/rotor_exact.h"
#include "strategies/rematerialization/rotor/rotor_table.h"
#include "tests/strategies/rematerialization/published_rotor.h"

namespace {

using namespace plimsoll;

ChainModel real_size_chain(std::size_t stages) {
  std::mt19937_64 generator(stages);
  const auto within = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(high - low + 1));
  };
  ChainModel model;
  model.x.push_back(Bytes{within(1'000'000, 50'000'000)});
  for (std::size_t i = 0; i < stages; ++i) {
    const bool loss = i + 1 == stages;
    const Bytes output{loss ? 0 : within(1'000'000, 50'000'000)};
    model.x.push_back(output);
    model.saved.push_back(output + Bytes{loss ? 0 : within(0, 100'000'000)});
    model.input_gradient.push_back(model.x[i]);
    model.forward_workspace.push_back(Bytes{within(0, 5'000'000)});
    model.nograd_workspace.push_back(model.forward_workspace.back());
    model.backward_workspace.push_back(Bytes{within(0, 20'000'000)});
    model.new_gradients.push_back(Bytes{within(0, 2'000'000)});
    model.forward.push_back(1e-9 * Seconds{static_cast<double>(within(100'000, 10'000'000))});
    model.nograd.push_back(model.forward.back());
    model.backward.push_back(2 * model.forward.back());
    model.recomputable.push_back(true);
    model.keeps_input.push_back(true);
    model.keeps_output.push_back(true);
  }
  return model;
}

Bytes part_of_peak(const ChainModel& model, std::int64_t percent) {
  return {evaluate(model, store_all_sequence(model.stages())).peak.count / 100 * percent};
}

// 40 % of store_all's memory, by stages and slots.
void rotor_at_the_same_slots(benchmark::State& state) {
  const ChainModel model = real_size_chain(static_cast<std::size_t>(state.range(0)));
  const Bytes budget = part_of_peak(model, 40);
  std::optional<ExactPlan> plan;
  for (auto _ : state) plan = RotorSlots(model, state.range(1), std::span(&budget, 1)).solve(budget);
  state.counters["seconds"] = plan->time.value;
}
void published_at_the_same_slots(benchmark::State& state) {
  const ChainModel model = real_size_chain(static_cast<std::size_t>(state.range(0)));
  const Bytes budget = part_of_peak(model, 40);
  std::optional<double> seconds;
  for (auto _ : state) seconds = published_rotor(model, budget.count, state.range(1));
  if (seconds) state.counters["seconds"] = *seconds;  // with few slots it finds nothing
}
void same_slots(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgsProduct({{100, 200, 250, 300}, {250, 500}})->Unit(benchmark::kMillisecond);
}
BENCHMARK(rotor_at_the_same_slots)->Apply(same_slots);
BENCHMARK(published_at_the_same_slots)->Apply(same_slots);

// What 500 slots would take if the table were not limited by a plan that is known.
void table(benchmark::State& state) {
  const ChainModel model = real_size_chain(static_cast<std::size_t>(state.range(0)));
  const Bytes budget = part_of_peak(model, 40);
  for (auto _ : state) benchmark::DoNotOptimize(RotorTable(model, slot_for(model, budget, 500), budget));
}
BENCHMARK(table)->Arg(50)->Arg(74)->Arg(100)->Arg(200)->Arg(300)->Unit(benchmark::kMillisecond);

void exact_one_budget(benchmark::State& state) {
  const ChainModel model = real_size_chain(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    const Bytes budget = part_of_peak(model, 50);
    benchmark::DoNotOptimize(RotorExact(model, std::span(&budget, 1)).solve(budget));
  }
}
BENCHMARK(exact_one_budget)
    ->Arg(27)
    ->Arg(50)
    ->Arg(74)
    ->Arg(100)
    ->Arg(200)
    ->Arg(250)
    ->Arg(260)
    ->Arg(500)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);

void exact_twenty_budgets(benchmark::State& state) {
  const ChainModel model = real_size_chain(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    const RotorExact exact(model);
    const std::int64_t least = exact.smallest_feasible().count, most = exact.store_all_peak().count;
    for (std::int64_t k = 0; k < 20; ++k) {
      benchmark::DoNotOptimize(exact.solve(Bytes{least + (most - least) * k / 20}));
    }
  }
}
BENCHMARK(exact_twenty_budgets)->Arg(74)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
