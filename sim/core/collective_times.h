#pragma once
// How long collectives take where nothing else is on their links, in closed form: for groups too large to simulate flow
// by flow, and for planners.

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// automatic: the fastest of those that there are for the kind, the bytes and the way the group is linked.
enum class CollectiveAlgorithm : std::uint8_t { automatic, ring, tree, halving_doubling, hierarchical };

class CollectiveTimes {
 public:
  explicit CollectiveTimes(const Platform&);

  /// `bytes`: of the whole value. all_reduce and broadcast: what every rank ends with; reduce_scatter: what every rank
  /// begins with; all_gather: what every rank ends with; all_to_all: what every rank has. 0 s for a group of one.
  Seconds seconds(CollectiveKind, Bytes, std::span<const DeviceId> group,
                  CollectiveAlgorithm = CollectiveAlgorithm::automatic);

 private:
  const Platform& platform_;
  RouteFinder routes_;
};

}  // namespace plimsoll
