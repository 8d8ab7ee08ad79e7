#pragma once
// The contiguous split of the least maximum load, as a placement.

#include "strategies/placement/placing.h"

namespace plimsoll {

/// Times and transfers are means, memory is static: parameters and all outputs of a device's ops are within the least
/// of the devices' memories. What uses one parameter shares a device. Infeasible also where there are too many sets of
/// ops that may come first.
PlacementOutcome place_ideals(const OpDag&, const Machine&);

}  // namespace plimsoll
