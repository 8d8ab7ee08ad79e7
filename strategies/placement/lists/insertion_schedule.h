#pragma once
// A schedule that grows by one node after the other, each into the first idle time of its processor that it fits into.

#include <optional>
#include <vector>

#include "strategies/placement/lists/idle_gaps.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// Whether a planner may put it there: the processor can run it and has memory at all.
bool may_run_on(const OpDag&, const Machine&, std::uint32_t node, std::size_t processor);

/// Nodes come after all that they wait for. The first of a group decides the processor for all of it.
class InsertionSchedule {
 public:
  InsertionSchedule(const OpDag&, const Machine&);

  /// Where it ends first, of equals the processor of the smallest number; nothing if none may run it.
  std::optional<std::uint32_t> earliest_finish(std::uint32_t node);
  /// Whether it may still be put there.
  bool may_take(std::uint32_t node, std::size_t processor) const;
  void place(std::uint32_t node, std::uint32_t processor);

  Nanoseconds makespan() const { return makespan_; }
  /// With nodes by their start on each processor.
  Placement placement() &&;

 private:
  Nanoseconds arrival(std::uint32_t node, std::size_t processor) const;

  const OpDag& dag_;
  const Machine& machine_;
  std::vector<IdleGaps> idle_;                // by processor
  std::vector<std::uint32_t> on_, group_on_;  // no_node: not decided
  std::vector<Nanoseconds> start_, finish_;
  std::vector<std::uint32_t> placed_;  // nodes, as they came
  Nanoseconds makespan_ = 0;
};

}  // namespace plimsoll
