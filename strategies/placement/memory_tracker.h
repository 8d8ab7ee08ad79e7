#pragma once
// Bytes of all processors over the times of one emulation, while nodes move between processors.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/placement/emulation.h"

namespace plimsoll {

// Bytes of one processor over time, in slots between instants; ranges of slots change, and slots above a limit are
// found.

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

/// What memory_of() counts, with times that stay as they were emulated. Slots end where nodes start or end; of a large
/// graph a slot spans several of these instants and counts what is there at any of them.
class MemoryTracker {
 public:
  MemoryTracker(const OpDag&, const Machine&, std::vector<std::uint32_t> on, const Emulation&);

  const std::vector<std::uint32_t>& on() const { return on_; }
  std::size_t slots() const { return instants_.size(); }
  const MemoryProfile& profile(std::size_t p) const { return profiles_[p]; }
  void move(std::span<const std::uint32_t> nodes, std::uint32_t to);

  struct Slots {
    std::size_t first = 0, end = 0;
    bool covers(std::size_t slot) const { return first <= slot && slot < end; }
  };
  Slots slots_between(Nanoseconds from, Nanoseconds to) const;
  Slots slots_of_node(std::uint32_t v) const { return slots_between(times_.start[v], times_.finish[v]); }
  /// Of a value, on the processors that read it and its maker's.
  Slots slots_of_value(std::uint32_t value, std::uint32_t p) const;

 private:
  void count_value(std::uint32_t value, std::int64_t sign);
  void count_resident(std::uint32_t resident, std::int64_t sign);
  void count(std::size_t p, Slots slots, std::int64_t bytes) { profiles_[p].add(slots.first, slots.end, bytes); }

  const OpDag& dag_;
  const Machine& machine_;
  const Emulation& times_;
  std::vector<std::uint32_t> on_;
  std::vector<Nanoseconds> instants_;  // by slot: its begin
  std::vector<MemoryProfile> profiles_;
  std::vector<std::vector<std::uint32_t>> uses_;  // by node: residents
  std::vector<Nanoseconds> first_;                // by processor, within count_resident()
  std::vector<std::uint32_t> seen_, there_;       // seen_: by processor, the last count; there_: processors of this one
  std::uint32_t count_number_ = 0;
};

}  // namespace plimsoll
