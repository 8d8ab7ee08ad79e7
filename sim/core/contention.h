#pragma once
// What a schedule would be if no copy shared its links or memories or slowed a kernel down, and no update its host.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// The schedule with every transfer and every update on a host replaced by a delay of the time that it takes alone; for
/// timing only.
Schedule without_contention(Schedule, const Platform&);

}  // namespace plimsoll
