#pragma once
// What every placement obeys, and random cases in which it is not easy to.

#include "strategies/placement/placing.h"

namespace plimsoll {

struct PlacementCase {
  OpDag dag;
  Machine machine;
};

/// Two classes of devices of which one may have no memory, groups, and a host as the last processor, on which a few
/// nodes must run.
PlacementCase random_placement_case(std::uint64_t seed, std::uint32_t nodes);

/// Every node on a processor that can run it and has memory, groups on one.
void check_rules(const PlacementCase&, const PlacementOutcome&);

}  // namespace plimsoll
