#include "sim/bound/range_maximum.h"

#include <algorithm>
#include <limits>

namespace plimsoll {

RangeMaximum::RangeMaximum(std::span<const std::int64_t> values) {
  while (leaves_ < values.size()) leaves_ *= 2;
  most_.assign(2 * leaves_, std::numeric_limits<std::int64_t>::min() / 4);
  added_.assign(2 * leaves_, 0);
  std::ranges::copy(values, most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
  for (std::size_t node = leaves_; node-- > 1;) above(node);
}

void RangeMaximum::above(std::size_t node) {
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

void RangeMaximum::change(std::size_t node, std::int64_t number) {
  most_[node] += number;
  added_[node] += number;
}

void RangeMaximum::add(std::size_t first, std::size_t last, std::int64_t number) {
  if (first >= last) return;
  std::size_t l = first + leaves_, r = last + leaves_;
  for (; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) change(l++, number);
    if (r % 2 == 1) change(--r, number);
  }
  for (std::size_t node = (first + leaves_) / 2; node > 0; node /= 2) above(node);
  for (std::size_t node = (last - 1 + leaves_) / 2; node > 0; node /= 2) above(node);
}

std::size_t RangeMaximum::where() const {
  std::size_t node = 1;
  while (node < leaves_) node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
  return node - leaves_;
}

}  // namespace plimsoll
