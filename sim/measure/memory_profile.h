#pragma once
// The live bytes of a memory over time, and the buffers in it at its peak.

#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

struct MemoryPoint {
  Seconds date;
  Bytes live;  ///< from this date on; several points of one date are its rounds
};

/// Live bytes of one memory, one point a change.
std::vector<MemoryPoint> memory_profile(const Schedule&, const Timeline&, const Platform&, MemoryId);

/// What one memory holds at its peak.
struct AtPeak {
  Bytes bytes, workspace;         ///< workspace: of the steps that run then
  std::vector<BufferId> buffers;  ///< largest first, ties by index
};
AtPeak at_peak(const Schedule&, const Timeline&, const Platform&, MemoryId);

}  // namespace plimsoll
