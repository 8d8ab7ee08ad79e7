// MONeT against an exhaustive search over implementations and sequences, and against Checkmate without alternatives.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

// Two layers, a loss, two gradients of 1 s and 1 byte. The first layer may take 5 bytes of workspace and half a second,
// which fits from 6 bytes on (nothing else is there but its own output).
TEST_CASE("monet takes the faster implementation where its workspace fits", "[monet]") {
  Graph graph = unit_net(2);
  graph.ops[0].alternatives = {{.name = "fast", .duration = Seconds{0.5}, .workspace = Bytes{5}}};
  const Problem problem = problem_of(graph, gpus({}));
  const Plan tight = std::get<Plan>(plan_one(problem, "monet", Bytes{5}));
  const Plan wide = std::get<Plan>(plan_one(problem, "monet", Bytes{6}));
  CHECK(tight.makespan.value == 5);
  CHECK(wide.makespan.value == 4.5);
  CHECK(wide.gap == 0.0);
  CHECK(wide.schedule.steps[0].implementation == 1);
  CHECK(wide.schedule.steps[0].workspace == Bytes{5});
  CHECK(check(wide.schedule, problem.graph, problem.platform).empty());
}

// The first layer saves 3 bytes more for its gradient, which takes it 4 s for 3; in 6 bytes it runs twice, the first
// time without. Another way of saving takes 3.5 s, no run of which is one that saves nothing.
TEST_CASE("monet knows that a run that saves nothing is none of the ways that save", "[monet]") {
  Graph graph = unit_net(2);
  graph.tensors.push_back({.name = "inner",
                           .kind = TensorKind::activation,
                           .bytes = Bytes{3},
                           .storage = id_at<StorageId>(graph.storages++)});
  const auto inner = id_at<TensorId>(graph.tensors.size() - 1);
  Op& layer = graph.ops.front();
  layer.outputs.push_back(inner);
  layer.saved = {inner};
  layer.duration = Seconds{4};
  layer.nograd_duration = Seconds{3};
  layer.alternatives = {{.name = "other", .duration = Seconds{3.5}, .workspace = Bytes{0}}};
  graph.ops.back().inputs.push_back(inner);
  const Problem problem = problem_of(graph, gpus({}));
  CHECK(std::get<Plan>(plan_one(problem, "monet", Bytes{7})).makespan.value == 3.5 + 4);
  const Plan made = std::get<Plan>(plan_one(problem, "monet", Bytes{6}));
  CHECK(made.makespan.value == 3 + 3.5 + 4);
  CHECK(made.gap == 0.0);
  CHECK(check(made.schedule, problem.graph, problem.platform).empty());
}

TEST_CASE("monet equals the search over implementations and sequences where the order is no restriction",
          "[monet][property]") {
  std::size_t solved = 0, recomputing = 0, choosing = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const auto layers = static_cast<std::size_t>(random.between(2, 4));
    const Problem problem = problem_of(with_alternatives(unit_net(layers), seed), gpus({}));
    for (std::int64_t budget = 4; budget <= 14; budget += 2) {
      INFO("seed " << seed << ", budget " << budget);
      const std::optional<double> best = least_time_of_graph(problem, budget);
      const PlanOutcome outcome = plan_one(problem, "monet", Bytes{budget});
      REQUIRE(std::holds_alternative<Plan>(outcome) == best.has_value());
      if (!best) {
        CHECK(std::get<Infeasible>(outcome).smallest->count == least_budget_of_graph(problem, 20));
        continue;
      }
      const Plan& made = std::get<Plan>(outcome);
      CHECK(made.makespan.value == Approx(*best));
      CHECK(made.gap == 0.0);
      CHECK(check(made.schedule, problem.graph, problem.platform).empty());
      CHECK(made.peak.count <= budget);
      ++solved;
      choosing += std::ranges::any_of(made.schedule.steps, [](const Step& s) { return s.implementation > 0; }) ? 1 : 0;
      recomputing += made.schedule.steps.size() > problem.graph.ops.size() ? 1 : 0;
    }
  }
  CAPTURE(solved, recomputing, choosing);
  if (all_cases()) CHECK(solved > cases_of(100U));
  if (all_cases()) CHECK(recomputing > cases_of(10U));
  if (all_cases()) CHECK(choosing > cases_of(50U));
}

TEST_CASE("monet is never below the optimum of random graphs", "[monet][property]") {
  std::size_t solved = 0, equal = 0;
  for (const RandomCase seed : fewer_cases(1, 80)) {
    Random random(seed);
    INFO("seed " << seed);
    Graph graph = random_single_sink(seed, static_cast<std::size_t>(random.between(5, 8)), 1);
    const Problem problem = problem_of(with_alternatives(std::move(graph), seed), gpus({}));
    const std::int64_t budget = std::get<Plan>(plan_one(problem, "store_all", std::nullopt)).peak.count - 1;
    const std::optional<double> best = least_time_of_graph(problem, budget);
    const PlanOutcome outcome = plan_one(problem, "monet", Bytes{budget});
    const Plan* made = std::get_if<Plan>(&outcome);
    if (made == nullptr) continue;
    REQUIRE(best);
    CHECK(made->makespan.value >= *best - 1e-9);
    ++solved;
    equal += made->makespan.value <= *best + 1e-9 ? 1 : 0;
  }
  CAPTURE(solved, equal);
  if (all_cases()) CHECK(solved > cases_of(20U));
  if (all_cases()) CHECK(equal * 10 > solved * 9);
}

TEST_CASE("without alternatives monet is checkmate", "[monet][property]") {
  for (const RandomCase seed : random_cases(1, 20)) {
    Random random(seed);
    INFO("seed " << seed);
    const Problem problem = problem_of(random_single_sink(seed, 7, 0.7), gpus({}));
    const std::int64_t budget = std::get<Plan>(plan_one(problem, "store_all", std::nullopt)).peak.count - 2;
    const PlanOutcome monet = plan_one(problem, "monet", Bytes{budget});
    const PlanOutcome checkmate = plan_one(problem, "checkmate", Bytes{budget});
    REQUIRE(monet.index() == checkmate.index());
    if (const Infeasible* none = std::get_if<Infeasible>(&checkmate)) {
      CHECK(std::get<Infeasible>(monet).smallest == none->smallest);
      continue;
    }
    CHECK(std::get<Plan>(monet).makespan.value == Approx(std::get<Plan>(checkmate).makespan.value));
  }
}

TEST_CASE("monet plans graphs that are too large for its program", "[monet]") {
  const std::array<std::size_t, 4> layers{2, 2, 3, 2};
  const Problem problem = problem_of(with_alternatives(dense_graph(layers), 1), gpus({}));
  const Plan plain = std::get<Plan>(plan_one(problem, "store_all", std::nullopt));
  const Plan made = std::get<Plan>(plan_one(problem, "monet", Bytes{plain.peak.count / 2}));
  CHECK(made.peak.count <= plain.peak.count / 2);
  CHECK(check(made.schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(measure(problem, made.schedule, timeline).peak == made.peak);
  REQUIRE(made.gap);
  CHECK(*made.gap > 0);
}

}  // namespace
}  // namespace plimsoll
