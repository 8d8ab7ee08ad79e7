#pragma once
// Time and peak of a tape without copies on one device: what its planner promises.

#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct TapeCost {
  Seconds makespan;        ///< of all micro-batches and the updates, one after the other
  Bytes peak;              ///< of the device, everything counted
  Bytes kept;              ///< bytes of a micro-batch there when its forward piece ends; 0 if it is not cut
  Bytes kept_for_weights;  ///< the same where it is cut before its weight gradients
  Bytes at_updates;        ///< there at the end, and the largest workspace of the updates; 0 if none has one
};

/// Walks the tape for the first micro-batch, in which parameter gradients may appear, and for a later one, in which
/// they exist. Copies are not timed and free their source at once.
TapeCost tape_cost(const Problem&, const Part&, const Tape&);

}  // namespace plimsoll
