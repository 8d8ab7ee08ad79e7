#pragma once
// The cheapest mix of columns that have two amounts, each limited in the mean: a linear program of three rows, and the
// prices of the two amounts. Source: Dantzig and Wolfe, "Decomposition principle for linear programs", 1960.

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace plimsoll {

struct MixedColumn {
  double cost = 0;
  std::array<double, 2> amounts{};
};

/// Shares of the columns add up to 1, and their amounts to the limits at most. More of the first may be bought.
struct MixLimits {
  std::array<double, 2> amounts{};
  double price_of_more = 0;  ///< of the first
};

struct LeastMix {
  std::array<double, 2> prices{};                      ///< of the amounts, at least 0
  double constant = 0;                                 ///< a column's cost and its amounts at these prices, at least
  double bought = 0;                                   ///< of the first amount
  std::vector<std::pair<std::size_t, double>> shares;  ///< of columns, by number
};

/// By the simplex method. The first column has no more of the second amount than the limit.
LeastMix least_mix(const std::vector<MixedColumn>&, const MixLimits&);

}  // namespace plimsoll
