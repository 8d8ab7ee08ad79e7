// Knapsack solvers against all subsets.

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/rematerialization/saving/knapsack.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

struct Sum {
  std::int64_t weight = 0;
  double value = 0;
};

Sum sum_of(const std::vector<KnapsackItem>& items, const Chosen& chosen) {
  Sum sum;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!chosen[i]) continue;
    sum.weight += items[i].weight;
    sum.value += items[i].value;
  }
  return sum;
}

std::vector<KnapsackItem> random_items(std::uint64_t seed, std::uint32_t largest) {
  Random random(seed);
  std::vector<KnapsackItem> items;
  const std::uint32_t count = random.below(11);
  for (std::uint32_t i = 0; i < count; ++i) {
    items.push_back({random.below(largest), static_cast<double>(random.below(30))});
  }
  return items;
}

double best_value(const std::vector<KnapsackItem>& items, std::int64_t capacity) {
  double best = 0;
  for (std::size_t set = 0; set < (std::size_t{1} << items.size()); ++set) {
    Chosen chosen(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) chosen[i] = ((set >> i) & 1U) != 0;
    const Sum sum = sum_of(items, chosen);
    if (sum.weight <= capacity) best = std::max(best, sum.value);
  }
  return best;
}

TEST_CASE("knapsack: ilp is optimal, dp up to rounding, greedy fits", "[knapsack][property][eleventh-9]") {
  for (const RandomCase seed : random_cases(0, 999)) {
    const bool fine = seed % 2 == 0;  // then the sum is below 10000 and nothing is rounded
    const std::vector<KnapsackItem> items = random_items(seed, fine ? 40 : 1'000'000);
    std::int64_t all = 0;
    for (const KnapsackItem& item : items) all += item.weight;
    const std::vector<std::int64_t> capacities{0, all / 7, all / 3, all / 2, all - all / 9, all};
    const std::vector<Chosen> greedy = greedy_knapsack(items, capacities);
    const std::vector<Chosen> rounded = rounded_knapsack(items, capacities);
    const auto [exact, cut_short] = exact_knapsack(items, capacities);
    REQUIRE(cut_short == 0);
    for (std::size_t c = 0; c < capacities.size(); ++c) {
      CAPTURE(seed, capacities[c]);
      const double best = best_value(items, capacities[c]);
      REQUIRE(sum_of(items, exact[c]).value == best);
      REQUIRE(sum_of(items, exact[c]).weight <= capacities[c]);
      REQUIRE(sum_of(items, rounded[c]).weight <= capacities[c]);
      REQUIRE(sum_of(items, greedy[c]).weight <= capacities[c]);
      REQUIRE(sum_of(items, rounded[c]).value <= best);
      REQUIRE(sum_of(items, greedy[c]).value <= best);
      if (fine) REQUIRE(sum_of(items, rounded[c]).value == best);
      const std::int64_t less = capacities[c] - all / 10'000 * 11;  // each of at most 10 weights was rounded up
      if (less >= 0) REQUIRE(sum_of(items, rounded[c]).value >= best_value(items, less));
    }
  }
}

TEST_CASE("knapsack: a search that its limit ends is counted and has what was found", "[knapsack]") {
  // Greedy takes the first alone; the best are the other two.
  const std::vector<KnapsackItem> items{{6, 7}, {5, 5}, {5, 5}};
  const auto [solutions, cut_short] = exact_knapsack(items, {10, 16}, 1);
  CHECK(cut_short == 1);  // at 16 everything fits, as the first node's bound proves
  CHECK(sum_of(items, solutions[0]).value == 7);
  CHECK(sum_of(items, solutions[1]).value == 17);
  const auto [best, none] = exact_knapsack(items, {10, 16}, 20);
  CHECK(none == 0);
  CHECK(sum_of(items, best[0]).value == 10);
}

TEST_CASE("knapsack: the limit that ended a search is in the answer", "[knapsack][limits]") {
  // Some 350 ops, of which many are as dense as others: no bound tells their combinations apart.
  const Problem problem = problem_of(dense_graph({4, 4, 4, 4}), gpus({}));
  const auto plan_of = [&](const std::string& spec, Bytes budget) { return plan_one(problem, spec, budget); };
  const Bytes least = front_budgets(problem, parse_spec("knapsack(solver=ilp,steps=3)", "test")).front();
  const auto made = std::get<Plan>(plan_of("knapsack(solver=ilp,steps=3)", least));
  CHECK(made.note.find("of 4 knapsacks stopped after 1000000 nodes each") != std::string::npos);
  const auto none = std::get<Infeasible>(plan_of("knapsack(solver=ilp,steps=3)", Bytes{1}));
  CHECK(none.reason.find("of 4 knapsacks stopped after 1000000 nodes each") != std::string::npos);
  CHECK(!none.smallest_is_proven);
  CHECK(std::get<Plan>(plan_of("knapsack(steps=3)", least + least)).note.empty());
}

TEST_CASE("knapsack saves everything where there is room, and its peak falls to the least that a capacity gives",
          "[knapsack]") {
  const Problem problem = problem_of(even_chain(8), gpus({}));
  for (const std::string solver : {"greedy", "dp", "ilp"}) {
    const std::vector<Pass> passes = parse_spec("knapsack(solver=" + solver + ")", "test");
    const std::vector<Pass> store_all = parse_spec("store_all", "test");
    const std::vector<Bytes> budgets = front_budgets(problem, passes);
    const std::vector<Bytes> plain = front_budgets(problem, store_all);
    CAPTURE(solver);
    CHECK(budgets.back() == plain.back());
    CHECK(budgets.front() < plain.back());
    CHECK(budgets.size() > 3);
  }
}

}  // namespace
}  // namespace plimsoll
