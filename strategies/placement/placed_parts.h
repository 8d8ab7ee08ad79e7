#pragma once
// From a placement and its orders to parts and what they exchange, and what plain training takes on them.

#include <span>
#include <vector>

#include "sim/core/partition.h"
#include "sim/model/problem.h"
#include "strategies/placement/emulation.h"
#include "strategies/placement/graph_dag.h"

namespace plimsoll {

/// A part for each device that has ops; every micro-batch takes one turn. A value is sent once to each device that
/// reads it, what is wanted first of an op's values first. `on`: the processor of each node. What runs on the host is
/// issued by the device that exchanges the most with it, and goes from and to other devices by way of that one.
Partition placed_parts(const Problem&, const GraphDag&, std::span<const std::uint32_t> on, const Emulation&);

// What plain training takes on a placement's parts, by the event engine with the links that they share.

struct PlainRun {
  Seconds makespan;
  std::vector<Bytes> peaks;  ///< by device
};

/// Throws InputError where the platform lacks a route.
PlainRun plain_run(const Problem&, const Partition&);

}  // namespace plimsoll
