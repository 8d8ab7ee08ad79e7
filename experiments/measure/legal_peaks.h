#pragma once
// Which peaks a schedule's own order allows. A free that only a copy orders may come before or after the next kernel's
// start, so that not every run of one schedule has the same peak.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct LegalPeaks {
  Bytes least, most;
};

/// Of the live bytes in a memory, over every order of starts and finishes that streams and waits allow, however long
/// the steps take. `most` is reached by one of them. `least` is a bound: at the start of some step no order has less;
/// whether one order has no more at every step is a hard question.
LegalPeaks legal_peaks(const Schedule&, const Platform&, MemoryId);

}  // namespace plimsoll
