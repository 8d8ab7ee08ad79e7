#pragma once
// A schedule without contention: no copy shares its links or memories or slows a kernel down, no update shares its
// host.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// The schedule with every transfer and every update on a host replaced by a delay of the time that it takes alone. It
/// is for timing only.
Schedule without_contention(Schedule, const Platform&);

}  // namespace plimsoll
