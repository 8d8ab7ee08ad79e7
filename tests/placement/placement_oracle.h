#pragma once
// The best placements of small graphs by trying all: what planners are held against.
//
// Searched are all placements with all orders by processor in which every op starts as soon as its order and its inputs
// let it (semi-active schedules), the times that emulate_in_order gives. Starting an op later never makes the end
// earlier, but it may need fewer bytes; such schedules are not searched. So without limits the makespan is the least of
// all schedules, and with limits the least of those that are executed here.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

struct ExactPlacement {
  Placement placement;
  std::vector<Nanoseconds> start;  ///< by node
  Nanoseconds makespan = 0;
};

/// The least makespan of those whose bytes (as memory_of counts them) are within `limits` by processor, whatever the
/// machine's own memory; nothing if there is none. For up to ten nodes or so.
std::optional<ExactPlacement> least_makespan(const OpDag&, const Machine&, std::span<const std::int64_t> limits);

/// The smallest number of bytes that is enough on every processor; nothing if no placement can run.
std::optional<std::int64_t> smallest_limit(const OpDag&, const Machine&);

}  // namespace plimsoll
