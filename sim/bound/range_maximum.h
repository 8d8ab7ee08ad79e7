#pragma once
// The largest of many numbers of which ranges rise and fall: a change costs the logarithm of how many there are.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

/// Numbers by position, to which numbers are added over ranges.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::span<const std::int64_t> values);

  /// To positions [first, last).
  void add(std::size_t first, std::size_t last, std::int64_t number);
  std::int64_t most() const { return most_[1]; }
  std::size_t where() const;  ///< the first of those with the most

 private:
  void change(std::size_t node, std::int64_t number);
  void above(std::size_t node);

  std::size_t leaves_ = 1;
  std::vector<std::int64_t> most_, added_;  // by node: below it, and what is added to all below it
};

}  // namespace plimsoll
