#pragma once
// What a pipeline takes without memory strategies in its parts.

#include "sim/core/partition.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Of plain training by a partition's turns, simulated. Throws InputError where they cannot be carried out.
Timeline plain_timeline(const Problem&, const Partition&);

/// Of the fullest device, simulated so.
Bytes plain_peak(const Problem&, const Partition&);

}  // namespace plimsoll
