// The program of several instants against `exact`, and `snapshot` against rockmate, whose plans it also asks for.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <memory>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/tape_cost.h"
#include "strategies/offloading/snapshot/few_values.h"
#include "strategies/offloading/snapshot/instants_plan.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

constexpr MilpLimits no_limits{.seconds = 600};
constexpr Seconds unknown{std::numeric_limits<double>::infinity()};

TEST_CASE("no schedule is faster than the program of several instants says", "[snapshot][property]") {
  const std::vector<Pass> exact = parse_spec("exact", "test");
  std::size_t points = 0, optimal = 0, plans = 0;
  for (const RandomCase seed : fewer_cases(1, 90)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(2, 4)), gpus({}),
                                       {.gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing});
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel ops = op_model(task);
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    const std::vector<OpId> path = heaviest_path(model, std::vector<double>(model.ops.size(), 1.0));
    const InstantsProgram program(model, path);
    std::vector<std::optional<Bytes>> budgets;
    for (const Bytes budget : front_budgets(problem, exact)) budgets.insert(budgets.end(), {budget, budget - Bytes{1}});
    const std::vector<PlanOutcome> best = plan(problem, exact, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const Plan* optimum = std::get_if<Plan>(&best[b]);
      if (optimum == nullptr) continue;
      const InstantsPlan found = instants_plan(program, *budgets[b], unknown, ops, no_limits);
      const double bound = (model.base + found.extra).value;
      CAPTURE(seed, budgets[b]->count, bound, optimum->makespan.value);
      REQUIRE(bound <= optimum->makespan.value * (1 + 1e-7));
      ++points;
      const Seconds extra = optimum->makespan - model.base;
      if (extra.value > 1e-7) {
        optimal += bound >= optimum->makespan.value * (1 - 1e-7) ? 1 : 0;
        const InstantsPlan less = instants_plan(program, *budgets[b], 0.9 * extra, ops, no_limits);
        CHECK(less.extra.value == Approx(std::min(0.9 * extra, found.extra).value).epsilon(1e-6).margin(1e-7));
      }
      REQUIRE(found.sequence);
      REQUIRE(is_runnable(ops, *found.sequence));
      const PlannedTape made = planned_ops(task, *found.sequence);
      CHECK(made.makespan.value >= bound * (1 - 1e-7));
      if (made.peak <= *budgets[b]) {
        ++plans;
        CHECK(made.makespan.value >= optimum->makespan.value * (1 - 1e-9));
      }
    }
  }
  CAPTURE(points, optimal, plans);
  if (!all_cases()) return;
  CHECK(points > cases_of(150U));
  CHECK(optimal > cases_of(20U));
  CHECK(plans > cases_of(80U));
}

TEST_CASE("searches for few values prove no more than is true, and their plans fit", "[snapshot][property]") {
  const std::vector<Pass> exact = parse_spec("exact", "test");
  const bool are_small = GENERATE(true, false);  // else with the programs of larger graphs
  std::size_t plans_found = 0, proven = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(2, 5)), gpus({}));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    SnapshotPlans plans(task, snapshot_instants(task).front(), 1);
    const std::size_t small = are_small ? FewValues::most_ops : 0;
    const std::unique_ptr<FewValues> few = FewValues::make(task, {&plans}, 1, small);
    REQUIRE(few != nullptr);
    std::vector<std::optional<Bytes>> budgets;
    for (const Bytes budget : front_budgets(problem, exact)) budgets.insert(budgets.end(), {budget, budget - Bytes{1}});
    const std::vector<PlanOutcome> best = plan(problem, exact, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const Plan* optimum = std::get_if<Plan>(&best[b]);
      if (optimum == nullptr) continue;
      CAPTURE(seed, are_small, budgets[b]->count);
      const PlannedTape* known = plans.best(*budgets[b]);
      const PlannedTape* made = few->faster(*budgets[b], known);
      const Seconds bound = few->bound(*budgets[b]);
      CHECK(bound.value <= optimum->makespan.value * (1 + 1e-7));
      proven += known != nullptr && bound > (1 + 1e-7) * plans.bound(*budgets[b]) ? 1 : 0;
      if (made == nullptr) continue;
      ++plans_found;
      CHECK(made->peak <= *budgets[b]);
      CHECK(made->makespan.value >= optimum->makespan.value * (1 - 1e-9));
    }
  }
  CAPTURE(are_small, plans_found, proven);
  if (!all_cases()) return;
  if (are_small) CHECK(plans_found > 0);
  CHECK(proven > cases_of(10U));
}

TEST_CASE("instants where programs' own solutions are fullest lead to faster plans", "[snapshot][property]") {
  std::size_t faster = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    const Problem problem = problem_of(random_graph(seed, 9), gpus({}));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    SnapshotPlans plans(task, snapshot_instants(task).front(), 1);
    const std::unique_ptr<FewValues> few = FewValues::make(task, {&plans}, 1, 0);
    std::optional<Seconds> before;
    for (int share = 40; share <= 95; share += 5) {
      const Bytes budget{plans.plain_peak().count * share / 100};
      const PlannedTape* known = plans.best(budget);
      if (known == nullptr) continue;
      CAPTURE(seed, share);
      const PlannedTape* made = few->faster(budget, known);
      if (made != nullptr) {
        ++faster;
        const TapeCost cost = tape_cost(problem, task.part(), made->tape);
        CHECK(cost.peak <= budget);
        CHECK(cost.makespan < known->makespan);
      }
      const Seconds best = made != nullptr ? made->makespan : known->makespan;
      CHECK(best.value >= few->bound(budget).value * (1 - 1e-7));
      if (before) CHECK(best <= *before);
      before = best;
    }
  }
  CAPTURE(faster);
  if (all_cases()) CHECK(faster > cases_of(3U));
}

TEST_CASE("each op of a heaviest path needs the one before", "[snapshot][property]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    const Problem problem = problem_of(random_graph(seed, 12), gpus({}));
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    const std::vector<OpId> path = heaviest_path(model, std::vector<double>(model.ops.size(), 1.0));
    CAPTURE(seed, path.size());
    REQUIRE(!path.empty());
    for (std::size_t k = 0; k + 1 < path.size(); ++k) {
      CHECK(instant_at(model, path[k + 1]).side[path[k].index] == Side::before);
    }
  }
}

TEST_CASE("snapshot without copies is never slower than rockmate, nor with more memory", "[snapshot][property]") {
  const std::vector<Pass> snapshot = parse_spec("snapshot(offload=no)", "test"), other = parse_spec("rockmate", "test");
  for (const RandomCase seed : fewer_cases(1, 40)) {
    const Problem problem = problem_of(random_graph(seed, 9), gpus({}));
    std::vector<std::optional<Bytes>> budgets;
    for (const Bytes budget : front_budgets(problem, other)) budgets.insert(budgets.end(), {budget, budget + Bytes{1}});
    const std::vector<PlanOutcome> made = plan(problem, snapshot, budgets), others = plan(problem, other, budgets);
    std::optional<Seconds> before;
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const Plan *own = std::get_if<Plan>(&made[b]), *its = std::get_if<Plan>(&others[b]);
      CAPTURE(seed, budgets[b]->count);
      REQUIRE((own != nullptr || its == nullptr));
      if (own == nullptr) continue;
      CHECK(own->peak <= *budgets[b]);
      if (its != nullptr) CHECK(own->makespan <= its->makespan);
      if (before) CHECK(own->makespan <= *before);
      before = own->makespan;
    }
  }
}

TEST_CASE("where one backward call fits, no backward stage by stage is proven to be needed", "[snapshot]") {
  const std::vector<Pass> snapshot = parse_spec("snapshot(offload=no)", "test"), all = parse_spec("store_all", "test");
  const Chain chain = std::get<Chain>(read_trace("traces/data/resnet50_b8_cpu.json").model);
  const Problem problem = problem_of(chain, gpus({}));
  const std::optional<Bytes> unlimited[] = {std::nullopt};
  const Plan plain = std::get<Plan>(plan(problem, all, unlimited).front());
  const std::optional<Bytes> budgets[] = {plain.peak, plain.peak - Bytes{1}};
  const std::vector<PlanOutcome> made = plan(problem, snapshot, budgets);
  CHECK(std::get<Plan>(made[0]).makespan == plain.makespan);
  CHECK(std::get<Plan>(made[0]).gap == 0);
  CHECK(std::get<Plan>(made[1]).makespan > 1.001 * plain.makespan);
}

}  // namespace
}  // namespace plimsoll
