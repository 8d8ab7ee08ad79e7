#pragma once
// How long an iteration takes at least by what its devices compute: no plan that takes longer needs to be simulated.

#include <span>

#include "sim/core/partition.h"
#include "sim/core/problem.h"
#include "sim/core/tape.h"

namespace plimsoll {

/// Of tapes, one a part, in the partition's order: what the device with the most to compute needs. Of a chain also what
/// comes before its first turn, the forwards of that micro-batch through the stages before, and after its last one, the
/// backwards through them. What is recomputed waits for nobody, and counts on its own device only; transfers, exchanges
/// and updates are left out.
Seconds least_makespan(const Problem&, const Partition&, std::span<const Tape>);

}  // namespace plimsoll
