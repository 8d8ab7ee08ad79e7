// Views, second names and inputs listed twice change nothing: every strategy's answers are those for the graph without.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/io/input_error.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/generate/views.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// Searches and integer programs get few and small graphs.
struct Effort {
  std::uint64_t graphs = 25;
  std::uint32_t ops = 10;
};

Effort effort_for(std::string_view strategy) {
  if (strategy == "checkmate" || strategy == "monet" || strategy == "poet") return {.graphs = 4, .ops = 3};
  if (strategy == "exact" || strategy == "checkmate_lp") return {.graphs = 8, .ops = 5};
  if (strategy == "offload_exact") return {.graphs = 8, .ops = 4};
  return {};
}

std::vector<std::string> specs() {
  std::vector<std::string> list;
  for (const StrategyInfo* strategy : strategies()) {
    const bool needs_shapes = strategy->family == Family::compression || strategy->needs_shapes;  // they have none
    const bool is_hybrid = strategy->family == Family::hybrid;                                    // tests/hybrid
    if (strategy->chains_only || needs_shapes || is_hybrid) continue;
    list.push_back(std::string(strategy->name) + (strategy->name == "recompute_ops" ? "(ops=*)" : ""));
  }
  list.insert(list.end(),
              {"greedy_recompute|offload_greedy", "rockmate|save_on_cpu", "sparse_update(train=last:2)|dtr"});
  return list;
}

Platform machine() {
  return gpus({.to_host = {16}, .adam = BytesPerSecond{8}, .to_disk = BytesPerSecond{8}});
}

/// Unset where a transform refuses the problem.
std::optional<Problem> possible(const Problem& problem, const std::vector<Pass>& passes) {
  try {
    return transformed(problem, passes);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

void check_same(const PlanOutcome& plain, const PlanOutcome& with) {
  REQUIRE(plain.index() == with.index());
  if (const Plan* made = std::get_if<Plan>(&plain)) {
    CHECK(std::get<Plan>(with).peak == made->peak);
    CHECK(std::get<Plan>(with).makespan == made->makespan);
  } else {
    CHECK(std::get<Infeasible>(with).smallest == std::get<Infeasible>(plain).smallest);
  }
}

TEST_CASE("every strategy answers for a graph with views what it answers for the same graph without",
          "[views][eleventh-5]") {
  for (const std::string& spec : specs()) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Effort effort = effort_for(passes.front().strategy->name);
    std::size_t compared = 0;
    for (const RandomCase seed : fewer_cases(1, effort.graphs, 5)) {
      INFO(spec << ", seed " << seed);
      Random random(seed);
      const Graph plain = random_graph(seed, random.between(1, effort.ops));
      if (bytes_of_kind(plain, TensorKind::parameter) == Bytes{0}) continue;
      const bool updates = passes.front().strategy->needs_updates || random.chance(0.3);
      const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1 : random.between(2, 3),
                                   .optimizer = updates ? Optimizer::adam : Optimizer::none,
                                   .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
      const std::optional<Problem> whole = possible(problem_of(plain, machine(), options), passes);
      if (!whole) continue;
      const Problem& without = *whole;
      const Problem with = transformed(problem_of(with_views(plain, seed), machine(), options), passes);
      const PlanOutcome free = plan_one(without, spec), named = plan_one(with, spec);
      check_same(free, named);
      if (!std::holds_alternative<Plan>(free)) continue;
      judge(with, std::get<Plan>(named), {});
      const std::int64_t peak = std::get<Plan>(free).peak.count;
      std::vector<std::optional<Bytes>> budgets;
      for (std::int64_t part = 3; part <= 10; ++part) budgets.emplace_back(Bytes{peak * part / 10});
      const std::vector<PlanOutcome> expected = plan(without, passes, budgets), found = plan(with, passes, budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        INFO("budget " << budgets[b]->count);
        check_same(expected[b], found[b]);
        if (const Plan* made = std::get_if<Plan>(&found[b])) judge(with, *made, budgets[b]);
        ++compared;
      }
    }
    if (all_cases()) CHECK(compared > cases_of(8U));
  }
}

// y = x w^T, and the gradient of w: as in every linear layer.
TEST_CASE("every strategy plans a layer that transposes its weight", "[views]") {
  Graph graph;
  graph.name = "linear";
  graph.tensors = {{"x", TensorKind::input, Bytes{4}, {0}, {}, ""},
                   {"w", TensorKind::parameter, Bytes{8}, {1}, {}, ""},
                   {"wt", TensorKind::activation, Bytes{8}, {1}, {}, ""},
                   {"y", TensorKind::activation, Bytes{4}, {2}, {}, ""},
                   {"g", TensorKind::parameter_gradient, Bytes{8}, {3}, {}, ""}};
  graph.storages = 4;
  const auto op = [&](std::string name, Phase phase, std::vector<TensorId> in, std::vector<TensorId> out, double time) {
    Op& made = graph.ops.emplace_back();
    made.name = std::move(name);
    made.phase = phase;
    made.duration = Seconds{time};
    made.inputs = std::move(in);
    made.outputs = std::move(out);
  };
  op("t", Phase::forward, {{1}}, {{2}}, 0.25);
  op("m", Phase::forward, {{0}, {2}}, {{3}}, 1);
  op("b", Phase::backward, {{0}, {3}}, {{4}}, 1);
  for (const std::string& spec : specs()) {
    INFO(spec);
    const bool updates = parse_spec(spec, "test").front().strategy->needs_updates;
    const Problem problem = problem_of(graph, machine(), {.optimizer = updates ? Optimizer::adam : Optimizer::none});
    CHECK(problem.view_time == Seconds{0.25});
    if (!possible(problem, parse_spec(spec, "test"))) continue;
    const Plan made = judged(problem, spec);
    Graph without = graph;
    without.ops.erase(without.ops.begin());
    without.ops[0].inputs = {{0}, {1}};
    const Plan plain =
        judged(problem_of(without, machine(), {.optimizer = updates ? Optimizer::adam : Optimizer::none}), spec);
    CHECK(made.makespan == plain.makespan);
    CHECK(made.peak == plain.peak);
    if (spec != "store_all") continue;
    CHECK(made.makespan == Seconds{2});  // views take no time
    CHECK(made.peak == Bytes{24});       // while b runs: x, w, y, g
  }
}

}  // namespace
}  // namespace plimsoll
