#pragma once
// Puts tapes on streams: Partition + one Tape a part -> Schedule. Compute runs in order on the device's compute stream,
// copies on their own streams; a step waits for the makers of what it reads, and a free for all who use the buffer.

#include <span>
#include <string>
#include <variant>

#include "sim/core/partition.h"
#include "sim/core/schedule.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// The schedule. After all turns every device updates the parameters that it owns, once; or, where the partition says
/// so, each part its own during the turns, as soon as the gradients of an update are there. Or one sentence why there
/// is no schedule:
///  - the platform lacks a route that a tape needs;
///  - devices wait for each other in a circle (two parts are named), or a slice of a sequence lacks what it attends to;
///  - a partial gradient of a parameter on several devices is not on its device;
///  - updates come during the turns, and parts share a parameter or a tape moves one.
/// A tape that reads what it does not hold is a broken promise.
std::variant<Schedule, std::string> lower(const Problem&, const Partition&, std::span<const Tape> tapes);

}  // namespace plimsoll
