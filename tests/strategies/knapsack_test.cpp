// Knapsack solvers against all subsets.

#include <catch2/catch.hpp>

#include "strategies/plan.h"
#include "strategies/rematerialization/knapsack_solver.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"

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

TEST_CASE("knapsack: ilp is optimal, dp up to rounding, greedy fits", "[knapsack][property]") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const bool fine = seed % 2 == 0;  // then the sum is below 10000 and nothing is rounded
    const std::vector<KnapsackItem> items = random_items(seed, fine ? 40 : 1'000'000);
    std::int64_t all = 0;
    for (const KnapsackItem& item : items) all += item.weight;
    const std::vector<std::int64_t> capacities{0, all / 7, all / 3, all / 2, all - all / 9, all};
    const std::vector<Chosen> greedy = greedy_knapsack(items, capacities);
    const std::vector<Chosen> rounded = rounded_knapsack(items, capacities);
    const std::vector<Chosen> exact = exact_knapsack(items, capacities);
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
