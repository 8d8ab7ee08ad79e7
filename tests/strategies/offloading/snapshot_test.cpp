// `snapshot` against `exact` on small problems, its memory against that of tapes, and its cuts as schedules.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/measure/lower_bounds.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/snapshot/sequence_memory.h"
#include "strategies/offloading/snapshot/snapshot_cuts.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

Problem little_problem(std::uint64_t seed) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1U : 2U,
                               .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
  if (random.chance(0.5)) return problem_of(random_small_chain(seed, random.between(1, 4)), gpus({}), options);
  return problem_of(random_graph(seed, random.between(1, 5)), gpus({}), options);
}

TEST_CASE("snapshot is never faster than the optimum, nor its gap less than the true one", "[snapshot][property]") {
  const std::vector<Pass> snapshot = parse_spec("snapshot(offload=no)", "test"), exact = parse_spec("exact", "test");
  std::size_t optimal = 0, plans = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    const Problem problem = little_problem(seed);
    std::vector<std::optional<Bytes>> budgets;
    for (const Bytes budget : front_budgets(problem, exact)) budgets.insert(budgets.end(), {budget, budget + Bytes{1}});
    const std::vector<PlanOutcome> made = plan(problem, snapshot, budgets), best = plan(problem, exact, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      CAPTURE(seed, budgets[b]->count);
      const Plan *found = std::get_if<Plan>(&made[b]), *optimum = std::get_if<Plan>(&best[b]);
      REQUIRE(optimum != nullptr);
      if (found == nullptr) continue;
      ++plans;
      const double most = optimum->makespan.value * (1 + 1e-9);
      CHECK(found->peak <= *budgets[b]);
      CHECK(found->makespan.value * (1 + 1e-9) >= optimum->makespan.value);
      if (found->gap) CHECK(found->makespan.value / (1 + *found->gap) <= most);
      optimal += found->makespan.value <= most ? 1 : 0;
    }
  }
  CHECK(optimal * 10 >= plans * 7);
}

/// Each second forward runs again before the backward.
OpSequence with_repeats(const PartTask& task, const OpModel& model, Random& random) {
  Evicted evicted(model.values.size(), false);
  for (auto&& each : evicted) each = random.chance(0.5);
  return recompute_order(model, evicted).value_or(store_all_ops(task));
}

TEST_CASE("the memory of a sequence is its tape's, also when runs are left out of it", "[snapshot][property]") {
  std::size_t shorter = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    CAPTURE(seed);
    Random random(seed);
    const Problem problem = little_problem(seed);
    const Partition partition = one_device(problem.graph, 1, problem.micro_batches);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel model = op_model(task);
    const OpSequence sequence = with_repeats(task, model, random);
    SequenceMemory memory(model, sequence);
    const PlannedTape before = planned_ops(task, sequence);
    REQUIRE(memory.peak() == before.peak);
    const Bytes budget = before.peak + Bytes{random.between(0, 3)};
    memory.leave_out(budget);
    const PlannedTape after = planned_ops(task, memory.sequence());
    CHECK(after.peak == memory.peak());
    CHECK(after.peak <= budget);
    CHECK(after.makespan <= before.makespan);
    shorter += memory.sequence().size() < sequence.size() ? 1 : 0;
    if (const std::optional<OpSequence> less = SequenceMemory(model, sequence).evicted(before.peak - Bytes{1})) {
      CHECK(SequenceMemory(model, *less).peak() == planned_ops(task, *less).peak);
    }
  }
  CHECK(shorter > 20);
}

TEST_CASE("a range's maximum is that of numbers added one by one", "[snapshot][property]") {
  for (const RandomCase seed : random_cases(1, 100)) {
    Random random(seed);
    std::vector<std::int64_t> numbers(random.between(1, 20));
    for (std::int64_t& number : numbers) number = random.between(0, 9);
    RangeMaximum most(numbers);
    for (int k = 0; k < 30; ++k) {
      const std::size_t first = random.below(static_cast<std::uint32_t>(numbers.size())),
                        last = random.between(static_cast<std::uint32_t>(first),
                                              static_cast<std::uint32_t>(numbers.size()));
      const std::int64_t add = static_cast<std::int64_t>(random.between(0, 18)) - 9;
      for (std::size_t i = first; i < last; ++i) numbers[i] += add;
      most.add(first, last, add);
      const auto greatest = std::ranges::max_element(numbers);
      CAPTURE(seed, k);
      REQUIRE(most.most() == *greatest);
      REQUIRE(most.where() == static_cast<std::size_t>(greatest - numbers.begin()));
    }
  }
}

TEST_CASE("every trade of the front of equal layers is a schedule, proven optimal", "[snapshot]") {
  const Problem problem = problem_of(even_chain(40), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  SnapshotPlans plans(task, snapshot_instants(task).front(), 1);
  REQUIRE(plans.bends().size() > 1);
  for (const SnapshotBend& bend : plans.bends()) {
    const Bytes level = plans.beside() + bend.kept;
    const std::optional<OpSequence> sequence = plans.sequence_of(bend.again);
    REQUIRE(sequence);
    const PlannedTape made = planned_ops(task, *sequence);
    CAPTURE(level.count, made.peak.count);
    CHECK(made.makespan.value == Approx(plans.bound(level).value).epsilon(1e-12));
    const OpId instant = plans.model().ops[plans.instant()].id;
    const auto run = std::ranges::find(*sequence, instant, &OpRun::op);
    CHECK(memory_of_runs(plans.model(), *sequence)[static_cast<std::size_t>(run - sequence->begin())].during == level);
  }
}

TEST_CASE("snapshot names the op that alone needs more than the budget", "[snapshot]") {
  const Problem problem = problem_of(even_chain(4), gpus({}));
  const LowerBounds bounds = lower_bounds(problem, 1);
  const std::vector<Pass> passes = parse_spec("snapshot(offload=no)", "test");
  const Infeasible none = std::get<Infeasible>(plan(problem, passes, bounds.memory - Bytes{1}));
  CHECK(none.reason.find("'" + problem.graph[*bounds.memory_by].name + "'") != std::string::npos);
  CHECK(none.reason.find(std::to_string(bounds.memory.count) + " B") != std::string::npos);
  REQUIRE(none.smallest);
  CHECK(*none.smallest >= bounds.memory);
}

}  // namespace
}  // namespace plimsoll
