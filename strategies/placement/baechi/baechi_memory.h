#pragma once
// The bytes that Baechi's schedulers believe to be on each processor.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// An op takes what it makes, its workspace while it runs, copies of what it reads that are not there yet, and
/// residents: with the first op of a group those of all the group. A value leaves all processors when its last reader
/// has ended.
class BaechiMemory {
 public:
  BaechiMemory(const OpDag&, const Machine&);

  /// What it would take more on the processor.
  std::int64_t needed(std::uint32_t node, std::uint32_t processor) const;
  std::int64_t room(std::uint32_t processor) const { return machine_.memory[processor] - used_[processor]; }
  void placed(std::uint32_t node, std::uint32_t processor);
  /// Returns the processors that have more room now.
  std::vector<std::uint32_t> finished(std::uint32_t node, std::uint32_t processor);
  const std::vector<std::int64_t>& peaks() const { return peak_; }

 private:
  /// Those that come with the node: of its group where that is not placed yet.
  const std::vector<std::uint32_t>& residents_with(std::uint32_t node) const;

  const OpDag& dag_;
  const Machine& machine_;
  std::vector<std::vector<std::uint32_t>> residents_of_node_, residents_of_group_;
  std::vector<bool> group_is_placed_;
  std::vector<std::vector<std::uint32_t>> value_on_, resident_on_;  // processors
  std::vector<std::size_t> unread_;                                 // by value: readers that have not ended
  std::vector<std::int64_t> used_, peak_;                           // by processor
};

}  // namespace plimsoll
