#pragma once
// Bytes of all processors over the times of one emulation, while nodes move between processors.

#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/memory_profile.h"

namespace plimsoll {

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
