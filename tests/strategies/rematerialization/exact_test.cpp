// `exact` against an exhaustive oracle, and on Checkmate's published example.

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/rematerialization/exact/exact.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

void agree_with_oracle(const Problem& problem, std::int64_t stride) {
  const std::int64_t most = std::get<Plan>(plan_one(problem, "exact")).peak.count;
  for (std::int64_t budget = most; budget >= 0; budget -= stride) {
    INFO("budget " << budget);
    const std::optional<double> least = least_time_of_graph(problem, budget);
    const PlanOutcome outcome = plan_one(problem, "exact", Bytes{budget});
    REQUIRE(least.has_value() == std::holds_alternative<Plan>(outcome));
    if (!least) {
      const std::int64_t smallest = std::get<Infeasible>(outcome).smallest->count;
      CHECK(least_time_of_graph(problem, smallest));
      CHECK(!least_time_of_graph(problem, smallest - 1));
      return;
    }
    CHECK(std::get<Plan>(outcome).makespan.value == Approx(*least));
    CHECK(std::get<Plan>(outcome).gap == 0.0);
  }
}

TEST_CASE("exact finds the optimum and the smallest budget of random training graphs", "[exact]") {
  for (const RandomCase seed : fewer_cases(1, 120)) {
    Random random(seed);
    INFO("seed " << seed);
    const Gradients gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing;
    const std::size_t ops = random.between(1, 3);
    agree_with_oracle(problem_of(random_graph(seed, ops), gpus({}), {.gradients = gradients}), 2);
  }
}

TEST_CASE("exact finds the optimum and the smallest budget of random chains", "[exact]") {
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    INFO("seed " << seed);
    agree_with_oracle(problem_of(random_small_chain(seed, random.between(1, 2)), gpus({})), 3);
  }
}

TEST_CASE("exact finds the optimum of thousands of random graphs with one sink and up to ten ops", "[exact]") {
  std::size_t solved = 0, infeasible = 0;
  for (const RandomCase seed : fewer_cases(1, 1500)) {
    Random random(seed);
    INFO("seed " << seed);
    const Problem problem =
        problem_of(random_single_sink(seed, random.between(5, seed % 25 == 0 ? 10 : 8), 0.8), gpus({}));
    const std::int64_t most = std::get<Plan>(plan_one(problem, "exact")).peak.count;
    for (int k = 0; k < 2; ++k) {
      const std::int64_t budget = most - random.between(1, 3);
      const std::optional<double> least = least_time_of_graph(problem, budget);
      const PlanOutcome outcome = plan_one(problem, "exact", Bytes{budget});
      REQUIRE(least.has_value() == std::holds_alternative<Plan>(outcome));
      if (least) CHECK(std::get<Plan>(outcome).makespan.value == Approx(*least));
      ++(least ? solved : infeasible);
    }
  }
  CAPTURE(solved, infeasible);
  if (all_cases()) CHECK(solved > cases_of(400U));
  if (all_cases()) CHECK(infeasible > cases_of(400U));
}

// bn makes x, relu overwrites it with y, and the backwards read y and what bn reads: to have y again, bn runs again.
TEST_CASE("exact recomputes through values that are overwritten in place", "[exact]") {
  Graph graph;
  const auto tensor = [&](const char* name, TensorKind kind, std::int64_t bytes, std::uint32_t storage) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{bytes}, .storage = StorageId{storage}, .shape = {}, .dtype = {}});
    graph.storages = std::max(graph.storages, storage + 1);
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto op = [&](const char* name, Phase phase, std::vector<TensorId> in, std::vector<TensorId> out) {
    Op made;
    made.name = name;
    made.phase = phase;
    made.duration = Seconds{1};
    made.inputs = std::move(in);
    made.outputs = std::move(out);
    graph.ops.push_back(made);
  };
  const TensorId input = tensor("input", TensorKind::input, 2, 0);
  const TensorId x = tensor("x", TensorKind::activation, 9, 1), y = tensor("y", TensorKind::activation, 9, 1);
  const TensorId z = tensor("z", TensorKind::activation, 5, 2), g = tensor("g", TensorKind::gradient, 5, 3);
  const TensorId last = tensor("last", TensorKind::gradient, 1, 4), big = tensor("big", TensorKind::activation, 12, 5);
  op("bn", Phase::forward, {input}, {x});
  op("relu", Phase::forward, {x}, {y});
  graph.ops.back().mutates = {x};
  op("conv", Phase::forward, {y}, {z});
  op("large", Phase::forward, {z}, {big});
  op("loss", Phase::backward, {big}, {g});
  op("conv backward", Phase::backward, {g, y, input}, {last});
  const Problem problem = problem_of(graph, gpus({}));
  agree_with_oracle(problem, 1);
}

// Checkmate's unit-cost linear net of 17 nodes at budget 4 takes 26: the reading in which g_i reads g_{i+1} and v_i.
TEST_CASE("exact solves Checkmate's unit nets of 17, 21 and 25 nodes at budget 4", "[exact]") {
  const auto [layers, optimum] = GENERATE(std::pair(8u, 26.0), std::pair(10u, 35.0), std::pair(12u, 45.0));
  const auto made = std::get<Plan>(plan_one(problem_of(unit_net(layers), gpus({})), "exact", Bytes{4}));
  CHECK(made.makespan.value == optimum);
  CHECK(made.gap == 0.0);
}

TEST_CASE("exact that stops early says how far its plan can be from the optimum", "[exact]") {
  const Problem problem = problem_of(unit_net(12), gpus({}));
  const auto best = std::get<Plan>(plan_one(problem, "exact", Bytes{7}));
  const auto early = std::get<Plan>(plan_one(problem, "exact(states=20)", Bytes{7}));
  REQUIRE(early.gap);
  CHECK(*early.gap > 0);
  CHECK(best.makespan.value >= early.makespan.value / (1 + *early.gap) - 1e-9);
  CHECK(best.makespan <= early.makespan);
}

/// Strategies that only recompute and need no search, as users may ask for them instead.
const std::vector<std::string> cheaper_on_chains{"rotor",    "rotor(slots=500)", "rotor_floating", "rockmate",
                                                 "revolve",  "revolve_hetero",   "chen_sqrt",      "chen_greedy",
                                                 "periodic", "full_recompute",   "selective"};
const std::vector<std::string> cheaper_on_all{"store_all", "ap_sqrt", "ap_greedy", "greedy_recompute", "rockmate",
                                              "dtr",       "min_cut", "knapsack",  "checkmate_lp"};

/// Budgets between the least that exact has a plan for and plain training's memory.
void not_worse_than(const std::vector<std::string>& cheaper, const Problem& problem) {
  const std::string stopped = "exact(states=1)";
  const Bytes most = planned(problem, "store_all").peak;
  for (const std::int64_t percent : {100, 90, 75, 60, 45}) {
    const Bytes budget{most.count * percent / 100};
    const PlanOutcome outcome = plan_one(problem, stopped, budget);
    const Plan* made = std::get_if<Plan>(&outcome);
    for (const std::string& spec : cheaper) {
      INFO(spec << " at " << budget.count);
      const PlanOutcome other = plan_one(problem, spec, budget);
      if (const Plan* plan = std::get_if<Plan>(&other)) {
        REQUIRE(made != nullptr);
        CHECK(made->makespan.value <= plan->makespan.value * (1 + 1e-12));
      } else if (made == nullptr) {
        const Infeasible &none = std::get<Infeasible>(outcome), &theirs = std::get<Infeasible>(other);
        REQUIRE(none.smallest);
        if (theirs.smallest) CHECK(*none.smallest <= *theirs.smallest);
      }
    }
  }
}

TEST_CASE("exact that stops early is as good as every cheaper method, on chains and on graphs", "[exact]") {
  for (const RandomCase seed : fewer_cases(1, 25)) {
    INFO("seed " << seed);
    std::vector<std::string> all = cheaper_on_all;
    all.insert(all.end(), cheaper_on_chains.begin(), cheaper_on_chains.end());
    not_worse_than(all, problem_of(random_small_chain(seed, 3 + seed % 10), gpus({})));
    not_worse_than(cheaper_on_all, problem_of(random_graph(seed, 3 + seed % 10), gpus({})));
  }
}

TEST_CASE("exact says of a smallest budget whether it is proven", "[exact]") {
  std::size_t unproven = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    INFO("seed " << seed);
    const Problem problem = problem_of(random_graph(seed, 4 + seed % 5), gpus({}));
    const auto proven = std::get<Infeasible>(plan_one(problem, "exact", Bytes{0}));
    const auto stopped = std::get<Infeasible>(plan_one(problem, "exact(states=1)", Bytes{0}));
    CHECK(proven.smallest_is_proven);
    CHECK(*stopped.smallest >= *proven.smallest);
    if (stopped.smallest_is_proven) CHECK(*stopped.smallest == *proven.smallest);
    unproven += stopped.smallest_is_proven ? 0 : 1;
    const Plan least = judged(problem, "exact(states=1)", *stopped.smallest);  // it is feasible all the same
    CHECK(least.peak <= *stopped.smallest);
  }
  if (all_cases()) CHECK(unproven > cases_of(10U));
}

TEST_CASE("exact names the limit that stopped it", "[exact][turn-31]") {
  const Problem problem = problem_of(unit_net(12), gpus({}));
  CHECK(planned(problem, "exact", Bytes{7}).note.empty());
  CHECK(
      planned(problem, "exact(states=20)", Bytes{7}).note.starts_with("the search stopped after 20 states (states); "));
  const Problem large = problem_of(unit_net(70), gpus({}));
  CHECK(planned(large, "exact", Bytes{30})
            .note.starts_with("not searched: 142 values and ops that must run, the search takes 128"));
}

}  // namespace
}  // namespace plimsoll
