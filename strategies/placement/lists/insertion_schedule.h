#pragma once
// A schedule that grows by one node after the other, each into the first idle time of its processor that it
// fits into.

#include <optional>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

// The idle times of one processor in a schedule that is filled out of order, and the first that is long enough.

/// In blocks of neighbours that know their longest: what is sought is found over the roots of what there is.
class IdleGaps {
 public:
  IdleGaps();

  /// The first time from `ready` on from which the processor is idle so long.
  Nanoseconds earliest(Nanoseconds ready, Nanoseconds time) const;
  /// The processor runs so long from `start` on; it must be idle then.
  void take(Nanoseconds start, Nanoseconds time);

 private:
  struct Gap {
    Nanoseconds begin, end;
  };
  using Block = std::vector<Gap>;

  std::size_t block_at(Nanoseconds time) const;
  void find_longest(std::size_t block);
  void split(std::size_t block);

  std::vector<Block> blocks_;         // none is empty, ascending
  std::vector<Nanoseconds> begins_;   // by block: of its first gap
  std::vector<Nanoseconds> longest_;  // by block
};

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
