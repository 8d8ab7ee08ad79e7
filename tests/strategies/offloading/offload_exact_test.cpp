// offload_exact against an exhaustive search by the letter, and the other strategies and the fluid bound against it.

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <map>

#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"
#include "tests/strategies/tape_oracle.h"

namespace plimsoll {
namespace {

Problem linked_chain(std::uint64_t seed, std::size_t stages, double bytes_per_second) {
  return problem_of(random_small_chain(seed, stages), gpus({.to_host = BytesPerSecond{bytes_per_second}}));
}

double bandwidth_of(Random& random) {
  constexpr std::array bandwidths{0.5, 1.0, 2.0, 4.0, 8.0};
  return bandwidths[random.below(bandwidths.size())];
}

struct Compared {
  int budgets = 0, proven = 0;
};

/// What offload_exact claims from `most` down: that no tape takes less than its time, its gap aside.
void no_tape_beats(const Problem& problem, const TapeOracle& oracle, Bytes most, Compared& compared) {
  for (Bytes budget = most; budget > Bytes{0}; budget -= Bytes{2}) {
    const std::optional<Seconds> tape = oracle.fastest(budget);
    const PlanOutcome found = plan_one(problem, "offload_exact(values=20)", budget);
    INFO("budget " << budget.count);
    if (std::holds_alternative<Infeasible>(found)) {
      CHECK_FALSE(tape);
      return;
    }
    const auto& exact = std::get<Plan>(found);
    judge(problem, exact, budget);
    REQUIRE(exact.gap);
    if (!tape) continue;
    CHECK(exact.makespan.value <= tape->value * (1 + *exact.gap) * (1 + 1e-9));
    ++compared.budgets;
    compared.proven += *exact.gap == 0 ? 1 : 0;
  }
}

TEST_CASE("no tape that moves two values beats offload_exact by more than its gap", "[offload]") {
  Compared compared;
  int complete = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const std::size_t stages = random.between(1, 4);
    const Problem problem = linked_chain(seed, stages, bandwidth_of(random));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const PlannedTape plain = planned_ops(task, store_all_ops(task));
    std::vector<TensorId> values = movable_values(task, plain.tape);
    while (values.size() > 2) values.erase(values.begin() + random.below(static_cast<std::uint32_t>(values.size())));
    TapeOracle oracle(task, plain.tape, values, 1);
    complete += oracle.try_all(8'000) ? 1 : 0;
    INFO("seed " << seed << ", " << stages << " stages, " << oracle.tapes() << " tapes");
    no_tape_beats(problem, oracle, plain.peak, compared);
  }
  if (all_cases()) CHECK(complete > cases_of(15));
  if (all_cases()) CHECK(compared.budgets > cases_of(50));
  if (all_cases()) CHECK(10 * compared.proven > 9 * compared.budgets);
}

TEST_CASE("no tape at random beats offload_exact by more than its gap", "[offload][eleventh-10]") {
  Compared compared;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const Platform platform = gpus({.to_host = BytesPerSecond{bandwidth_of(random)}});
    const bool chain = random.chance(0.6);
    const Problem problem = chain ? problem_of(random_small_chain(seed, random.between(2, 5)), platform)
                                  : problem_of(random_graph(seed, random.between(2, 4)), platform);
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const PlannedTape plain = planned_ops(task, store_all_ops(task));
    TapeOracle oracle(task, plain.tape, movable_values(task, plain.tape), 2);
    oracle.try_random(1'000, seed);
    INFO("seed " << seed << (chain ? ", chain" : ", graph"));
    no_tape_beats(problem, oracle, plain.peak, compared);
  }
  if (all_cases()) CHECK(compared.budgets > cases_of(150));
  if (all_cases()) CHECK(10 * compared.proven > 9 * compared.budgets);
}

// Stage 0 makes x_1 (10 bytes) in its second; stage 1 reads it from 1 s to 2 s, and again from 2 s to 4 s, after a loss
// that takes no time. vdnn takes x_1 away beside stage 1's forward.
TEST_CASE("offload_exact says what ended its search, or that there was none", "[offload][limits][eleventh-3]") {
  const Problem problem = linked_chain(3, 12, 0.5);
  const Bytes all = planned(problem, "store_all").peak;
  const Bytes least = std::get<Infeasible>(plan_one(problem, "offload_exact(values=20)", Bytes{1})).smallest.value();
  const Bytes budget{(least.count + all.count) / 2};
  CHECK(planned(problem, "offload_exact(values=20)", budget).note == "a search stopped after 50000 rows");
  const Plan none = planned(problem, "offload_exact(values=1)", budget);
  CHECK(none.note.starts_with("no search: "));
  CHECK(none.note.ends_with(" values, more than values=1; the plan is that of offload_greedy"));
  CHECK(none.makespan == planned(problem, "offload_greedy(chunks=1)", budget).makespan);
  CHECK(planned(linked_chain(3, 4, 0.5), "offload_exact(values=20)").note.empty());
}

TEST_CASE("a layer's input leaves while the layer reads it", "[offload]") {
  const Problem problem = problem_of(even_chain(2), gpus({.to_host = BytesPerSecond{10}}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const OffloadModel model = std::get<OffloadModel>(offload_model(task, nullptr));
  const auto x1 = std::ranges::find_if(
      model.gaps, [](const OffloadGap& gap) { return gap.bytes == Bytes{10} && gap.holds_positions(); });
  REQUIRE(x1 != model.gaps.end());
  CHECK(x1->made == 0);
  CHECK(x1->from == 1);
  const Plan made = std::get<Plan>(plan_one(problem, "vdnn(mode=all)"));
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  std::optional<Seconds> first;
  for (std::size_t s = 0; s < made.schedule.steps.size(); ++s) {
    if (made.schedule.steps[s].kind == StepKind::offload && made.schedule.steps[s].work.bytes == Bytes{10}) {
      first = std::min(first.value_or(timeline.steps[s].start), timeline.steps[s].start);
    }
  }
  REQUIRE(first);
  CHECK(first->value >= 1);
  CHECK(first->value < 2);  // behind stage 0's inner tensor
}

TEST_CASE("no offloading of whole values beats offload_exact, and nothing the fluid bound", "[offload][eleventh-7]") {
  double greedy_over_exact = 0;
  int cases = 0, proven = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const Problem problem = linked_chain(seed, random.between(1, 6), bandwidth_of(random));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OffloadModel model = std::get<OffloadModel>(offload_model(task, nullptr));
    if (offload_items(model, 1).size() > 10) continue;
    const auto plan_of = [&](const char* spec, Bytes budget) {
      const std::optional<Bytes> limit = budget;
      return plan(problem, parse_spec(spec, "test"), limit);
    };
    for (Bytes budget = *std::ranges::max_element(model.memory); budget > Bytes{0}; budget -= Bytes{5}) {
      INFO("seed " << seed << ", budget " << budget.count);
      const PlanOutcome exact = plan_of("offload_exact", budget);
      if (std::holds_alternative<Infeasible>(exact)) break;
      const double best = std::get<Plan>(exact).makespan.value;
      const double gap = std::get<Plan>(exact).gap.value();
      proven += gap == 0 ? 1 : 0;
      CHECK(best >= fluid_bound(model, budget)->value * (1 - 1e-12));
      for (const char* spec : {"vdnn", "save_on_cpu", "superneurons(recompute=off)", "capuchin(recompute=off)",
                               "offload_greedy(chunks=1)", "offload_dp(chunks=1)", "offload_fractional(chunks=1)"}) {
        const PlanOutcome other = plan_of(spec, budget);
        if (!std::holds_alternative<Plan>(other)) continue;
        INFO(spec);
        CHECK(std::get<Plan>(other).makespan.value >= fluid_bound(model, budget)->value * (1 - 1e-9));
        CHECK(best <= std::get<Plan>(other).makespan.value * (1 + gap) * (1 + 1e-9));
      }
      for (const char* spec : {"offload_greedy", "offload_dp", "offload_fractional"}) {
        const PlanOutcome chunked = plan_of(spec, budget);
        if (!std::holds_alternative<Plan>(chunked)) continue;
        INFO(spec);
        CHECK(std::get<Plan>(chunked).gap.value() >= 0);
        CHECK(std::get<Plan>(chunked).makespan.value >= fluid_bound(model, budget)->value * (1 - 1e-9));
      }
      const PlanOutcome greedy = plan_of("offload_greedy(chunks=1)", budget);
      if (!std::holds_alternative<Plan>(greedy)) continue;
      greedy_over_exact += std::get<Plan>(greedy).makespan.value / best;
      ++cases;
    }
  }
  INFO("offload_greedy(chunks=1) over offload_exact, mean of " << cases << ": " << greedy_over_exact / cases);
  if (every_case() && all_cases()) CHECK(greedy_over_exact / cases < 1.01);
  if (every_case() && all_cases()) CHECK(20 * proven > 19 * cases);
}

TEST_CASE("offload_exact is never slower with more bandwidth or more memory", "[offload]") {
  int compared = 0;
  for (const RandomCase seed : fewer_cases(1, 30)) {
    Random random(seed);
    const std::size_t stages = random.between(2, 4);
    std::map<Bytes, Seconds> slower;  // by budget, over the link before
    for (const double bandwidth : {0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 9.0}) {
      const Problem problem = linked_chain(seed, stages, bandwidth);
      Seconds with_more;
      for (Bytes budget = planned(problem, "store_all").peak; budget > Bytes{0}; budget -= Bytes{3}) {
        const PlanOutcome made = plan_one(problem, "offload_exact", budget);
        if (std::holds_alternative<Infeasible>(made)) break;
        const Seconds time = std::get<Plan>(made).makespan;
        INFO("seed " << seed << ", " << bandwidth << " B/s, budget " << budget.count);
        CHECK(time >= (1 - 1e-9) * with_more);
        with_more = time;
        const auto [before, fresh] = slower.try_emplace(budget, time);
        CHECK(time <= (1 + 1e-9) * before->second);
        before->second = time;
        compared += fresh ? 0 : 1;
      }
    }
  }
  if (all_cases()) CHECK(compared > cases_of(500));
}

}  // namespace
}  // namespace plimsoll
