#pragma once
// What no schedule can beat that does no more than a given one does, within its peak.

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// By cuts at every op, or at 40 of them: of schedules that leave as much on the device, pack by the same codecs, copy
/// to other memories only if this one does, and take micro-batches in turn if this one does. 0 for several devices and
/// for updates within the iteration.
Seconds bound_of(const Problem&, const Schedule&, Bytes peak);

}  // namespace plimsoll
