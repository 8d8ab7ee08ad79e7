#pragma once
// Bytes of one processor over time, in slots between instants; ranges of slots change, and slots above a limit are
// found.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace plimsoll {

/// A tree of maxima with additions to ranges: O(log slots) each.
class MemoryProfile {
 public:
  explicit MemoryProfile(std::size_t slots) : leaves_(std::bit_ceil(slots)), most_(2 * leaves_, 0), add_(leaves_, 0) {}

  std::int64_t peak() const { return most_[1]; }

  /// To slots from `first` to before `end`.
  void add(std::size_t first, std::size_t end, std::int64_t bytes) {
    if (first < end) add(1, 0, leaves_, first, end, bytes);
  }

  std::int64_t at(std::size_t slot) const {
    std::size_t i = leaves_ + slot;
    std::int64_t sum = most_[i];
    while ((i /= 2) > 0) sum += add_[i];
    return sum;
  }

  /// The last slot before `end` with more than this.
  std::optional<std::size_t> last_above(std::int64_t limit, std::size_t end) const {
    return last_above(1, 0, leaves_, end, limit);
  }

 private:
  void add(std::size_t i, std::size_t from, std::size_t to, std::size_t first, std::size_t end, std::int64_t bytes) {
    if (end <= from || to <= first) return;
    if (first <= from && to <= end) {
      most_[i] += bytes;
      if (i < leaves_) add_[i] += bytes;
      return;
    }
    const std::size_t middle = (from + to) / 2;
    add(2 * i, from, middle, first, end, bytes);
    add(2 * i + 1, middle, to, first, end, bytes);
    most_[i] = add_[i] + std::max(most_[2 * i], most_[2 * i + 1]);
  }

  std::optional<std::size_t> last_above(std::size_t i, std::size_t from, std::size_t to, std::size_t end,
                                        std::int64_t limit) const {
    if (end <= from || most_[i] <= limit) return std::nullopt;
    if (i >= leaves_) return from;
    const std::size_t middle = (from + to) / 2;
    const auto right = last_above(2 * i + 1, middle, to, end, limit - add_[i]);
    return right ? right : last_above(2 * i, from, middle, end, limit - add_[i]);
  }

  std::size_t leaves_;
  std::vector<std::int64_t> most_;  // by tree node: with what is added to it, without what is added above
  std::vector<std::int64_t> add_;   // by inner node
};

}  // namespace plimsoll
