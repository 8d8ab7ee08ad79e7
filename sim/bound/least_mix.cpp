#include "sim/bound/least_mix.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using MixRow = std::array<double, 3>;

/// Of a cost that is taken for none, and of a pivot.
constexpr double no_worth = 1e-12;
constexpr int most_pivots = 2000;

/// Solves three equations by elimination.
MixRow solved_rows(std::array<MixRow, 3> rows, MixRow right) {
  for (std::size_t k = 0; k < 3; ++k) {
    std::size_t pivot = k;
    for (std::size_t r = k + 1; r < 3; ++r) {
      if (std::abs(rows[r][k]) > std::abs(rows[pivot][k])) pivot = r;
    }
    std::swap(rows[k], rows[pivot]);
    std::swap(right[k], right[pivot]);
    EXPECTS(rows[k][k] != 0);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == k) continue;
      const double factor = rows[r][k] / rows[k][k];
      for (std::size_t c = k; c < 3; ++c) rows[r][c] -= factor * rows[k][c];
      right[r] -= factor * right[k];
    }
  }
  for (std::size_t k = 0; k < 3; ++k) right[k] /= rows[k][k];
  return right;
}

/// Rows: shares add up to 1; the first amount; the second.
class MixSimplex {
 public:
  MixSimplex(const std::vector<MixedColumn>& columns, const MixLimits& limits) : count_(columns.size()) {
    EXPECTS(count_ > 0 && columns.front().amounts[1] <= limits.amounts[1]);
    for (std::size_t a = 0; a < 2; ++a) {
      for (const MixedColumn& column : columns) scale_[a] = std::max(scale_[a], std::abs(column.amounts[a]));
      if (!(scale_[a] > 0)) scale_[a] = 1;
      right_[a + 1] = limits.amounts[a] / scale_[a];
    }
    for (const MixedColumn& column : columns) {
      rows_.push_back({1, column.amounts[0] / scale_[0], column.amounts[1] / scale_[1]});
      costs_.push_back(column.cost);
      largest_ = std::max(largest_, std::abs(column.cost));
    }
    rows_.insert(rows_.end(), {{0, -1, 0}, {0, 1, 0}, {0, 0, 1}});  // bought, and what is left of each
    costs_.insert(costs_.end(), {limits.price_of_more * scale_[0], 0, 0});
    const bool fits = rows_.front()[1] <= right_[1];
    basis_ = {0, fits ? count_ + 1 : count_, count_ + 2};
  }

  LeastMix solve() {
    for (int step = 0; step < most_pivots && improve(step > most_pivots / 2); ++step) continue;
    const MixRow price = prices();
    LeastMix mix{.prices = {std::max(0.0, -price[1]) / scale_[0], std::max(0.0, -price[2]) / scale_[1]},
                 .constant = price[0]};
    const MixRow amounts = solved_rows(transposed(), right_);
    for (std::size_t k = 0; k < 3; ++k) {
      if (basis_[k] < count_ && amounts[k] > 0) mix.shares.emplace_back(basis_[k], amounts[k]);
      if (basis_[k] == count_) mix.bought = amounts[k] * scale_[0];
    }
    return mix;
  }

 private:
  std::array<MixRow, 3> of_basis() const { return {rows_[basis_[0]], rows_[basis_[1]], rows_[basis_[2]]}; }
  std::array<MixRow, 3> transposed() const {
    const std::array<MixRow, 3> b = of_basis();
    std::array<MixRow, 3> rows;
    for (std::size_t r = 0; r < 3; ++r) rows[r] = {b[0][r], b[1][r], b[2][r]};
    return rows;
  }
  MixRow prices() const { return solved_rows(of_basis(), {costs_[basis_[0]], costs_[basis_[1]], costs_[basis_[2]]}); }

  /// One column takes the place of another. `first`: the first that is worth it, so that it ends; else the cheapest.
  bool improve(bool first) {
    const MixRow price = prices();
    std::optional<std::size_t> enters;
    double least = -no_worth * std::max(largest_, std::abs(price[0]));
    for (std::size_t c = 0; c < rows_.size(); ++c) {
      const MixRow& row = rows_[c];
      const double worth = costs_[c] - price[0] * row[0] - price[1] * row[1] - price[2] * row[2];
      if (worth >= least || std::ranges::find(basis_, c) != basis_.end()) continue;
      enters = c;
      if (first) break;
      least = worth;
    }
    if (!enters) return false;
    const MixRow amounts = solved_rows(transposed(), right_), change = solved_rows(transposed(), rows_[*enters]);
    std::optional<std::size_t> leaves;
    double shortest = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      if (change[k] <= no_worth) continue;
      const double length = std::max(0.0, amounts[k]) / change[k];
      if (leaves && (length > shortest || (length == shortest && basis_[k] > basis_[*leaves]))) continue;
      leaves = k;
      shortest = length;
    }
    if (!leaves) return false;
    basis_[*leaves] = *enters;
    return true;
  }

  std::size_t count_;
  std::array<double, 2> scale_{};
  MixRow right_{1, 0, 0};
  std::vector<MixRow> rows_;  // by column
  std::vector<double> costs_;
  double largest_ = 0;
  std::array<std::size_t, 3> basis_{};
};

}  // namespace

LeastMix least_mix(const std::vector<MixedColumn>& columns, const MixLimits& limits) {
  return MixSimplex(columns, limits).solve();
}

}  // namespace plimsoll
