#pragma once
// Sums over ranges of rows of numbers that change, all columns of a row together.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

/// A binary indexed tree (Fenwick, 1994) with a row of `columns` numbers at each place: O(columns log places).
class FenwickRows {
 public:
  FenwickRows(std::size_t places, std::size_t columns) : columns_(columns), rows_((places + 1) * columns, 0) {}

  void add(std::size_t place, std::size_t column, std::int64_t what) {
    const std::size_t places = rows_.size() / columns_ - 1;
    for (std::size_t i = place + 1; i <= places; i += i & (~i + 1)) rows_[i * columns_ + column] += what;
  }

  /// By column, over places from `first` to before `end`.
  void sum(std::size_t first, std::size_t end, std::span<std::int64_t> sums) const {
    std::ranges::fill(sums, 0);
    if (end <= first) return;
    std::size_t high = end, low = first;
    for (; high > low; high &= high - 1) gather<1>(high, sums);
    for (; low > high; low &= low - 1) gather<-1>(low, sums);
  }

 private:
  template <int sign>
  void gather(std::size_t row, std::span<std::int64_t> sums) const {
    for (std::size_t c = 0; c < columns_; ++c) sums[c] += sign * rows_[row * columns_ + c];
  }

  std::size_t columns_;
  std::vector<std::int64_t> rows_;
};

}  // namespace plimsoll
