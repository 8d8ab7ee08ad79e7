#pragma once
// The plain tape of a part of a graph.

#include "sim/core/partition.h"
#include "sim/core/tape.h"

namespace plimsoll {

/// Every op once, and what goes from part to part. Ops that are pinned to the host run there: what they read is copied
/// there as soon as it is on the device, what others read of theirs is copied back at once.
Tape graph_tape(const Graph&, const Part&);

}  // namespace plimsoll
