#pragma once
// 0/1 knapsack for every capacity of a list: the items of most value whose weights fit.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

struct KnapsackItem {
  std::int64_t weight;
  double value;
};

using Chosen = std::vector<bool>;  ///< by item

/// By value per weight, the best first, whatever still fits. Source: Dantzig, "Discrete-variable extremum problems",
/// Operations Research 5(2), 1957.
std::vector<Chosen> greedy_knapsack(const std::vector<KnapsackItem>&, const std::vector<std::int64_t>& capacities);

/// Optimal for weights rounded up to 1/10000 of their sum, by dynamic programming over capacities.
std::vector<Chosen> rounded_knapsack(const std::vector<KnapsackItem>&, const std::vector<std::int64_t>& capacities);

struct ExactKnapsack {
  std::vector<Chosen> solutions;
  std::size_t cut_short = 0;  ///< how many of the searches ended before they had proven theirs to be the best
};

inline constexpr std::int64_t knapsack_nodes = 1'000'000;  ///< of one search

/// The 0/1 program itself, by branch and bound with its relaxation as bound; at most so many nodes a capacity, after
/// which the best that was found stands. Source: Horowitz, Sahni, "Computing partitions with applications to the
/// knapsack problem", Journal of the ACM 21(2), 1974.
ExactKnapsack exact_knapsack(const std::vector<KnapsackItem>&, const std::vector<std::int64_t>& capacities,
                             std::int64_t most_nodes = knapsack_nodes);

}  // namespace plimsoll
