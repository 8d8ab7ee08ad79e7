#pragma once
// What no simulation of a point of `cluster` can beat: in closed form, from the costs of its devices.

#include <cstdint>
#include <string>
#include <vector>

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
  const std::vector<DeviceCosts>& devices;       ///< of its stages and chunks
  const std::vector<ReplicaExchange>& shared;    ///< by device
  std::uint32_t micro_batches;                   ///< of each replica
  const std::vector<std::uint32_t>& parts_kept;  ///< forwards_kept
  bool is_cut_known = true;                      ///< whether `devices` are those of its own cut
};

/// By device, of a schedule whose orders are the same for all costs: forwards of parts whose backwards have not begun,
/// at most; else empty.
std::vector<std::uint32_t> forwards_kept(const ClusterPoint&, std::uint32_t micro_batches);

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

}  // namespace plimsoll
