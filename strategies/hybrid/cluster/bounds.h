#pragma once
// What no simulation of a point of `cluster` can beat: in closed form, from the costs of its devices.

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/partition.h"
#include "strategies/hybrid/cluster/rank_costs.h"
#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {

/// How long the replicas of one device exchange what it has of the model; lower bounds.
struct ReplicaExchange {
  Seconds once;       ///< after the last micro-batch: sums of gradients, and parameters that are handed out
  Seconds each_time;  ///< for every micro-batch: parameters that are gathered, gradients that are summed
};

struct BoundedPoint {
  const ClusterPoint& point;
  const RankCosts& costs;
  const std::vector<DeviceCosts>& devices;     ///< of its stages and chunks
  const std::vector<ReplicaExchange>& shared;  ///< by device
  std::uint32_t micro_batches;                 ///< of each replica
  bool is_cut_known = true;                    ///< whether `devices` are those of its own cut
};

/// A device's memory, by what it consists of.
struct MemoryBound {
  Bytes parameters, gradients, states, activations;

  Bytes total() const { return parameters + gradients + states + activations; }
};

/// Of the fullest device (memory_bound.cpp).
MemoryBound memory_bound(const BoundedPoint&);

/// Of the iteration: what devices compute, and what fills and drains a pipeline (computation_bound.cpp).
Seconds computation_bound(const BoundedPoint&);

/// Of the iteration: what replicas exchange beside that (exchange_bound.cpp).
Seconds exchange_bound(const BoundedPoint&);

/// Of device r's updates, behind its last backward; where they are streamed to it or only some leave it, none are
/// counted.
Seconds updates_bound(const ClusterPoint&, const DeviceCosts&);

/// Of both, in the order in which the schedule runs (order_bound.cpp).
struct OrderBound {
  Seconds time;
  MemoryBound memory;
};

/// `of_stages`: the chain of a replica with its times, whose micro-batches are those of a replica; `partition`: what
/// the point's schedule makes of it.
OrderBound order_bound(const BoundedPoint&, const Problem& of_stages, const Partition&);

}  // namespace plimsoll
