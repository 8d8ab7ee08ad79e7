#pragma once
// How long an iteration takes at least by what its devices compute: no plan that takes longer needs to be simulated.

#include <span>

#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Of tapes, one a part, in the partition's order: every device computes one thing after the other, what reads a value
/// of another device not before its maker's end and the time of the transfer alone. Other copies, shared links and
/// updates are left out; so is what a device waits for where parts have copies. 0 where tapes pack values or the
/// devices wait for each other in a circle. Linear in the turns.
Seconds least_makespan(const Problem&, const Partition&, std::span<const Tape>);

}  // namespace plimsoll
