#pragma once
// Devices whose memory is planned before the run: every buffer and workspace has its place in one block.

#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/memory/replay.h"

namespace plimsoll {

/// One per memory of the platform; those that are no device's reserve their live bytes. Sizes are rounded up to 512 B,
/// the block to the 2 MiB of the driver. A plan that is larger than the capacity or the budget is out of memory.
std::vector<ReservedPeak> planned_peaks(const Schedule&, const Timeline&, const Platform&);

}  // namespace plimsoll
