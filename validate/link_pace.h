#pragma once
// How fast a copy between two memories may be: the pace of the links between them.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// `bytes` take at least latency + bytes / bandwidth.
struct LinkPace {
  Seconds latency;
  BytesPerSecond bandwidth = unlimited_bandwidth;
};

/// The pace of the way between two memories: latencies add, the slowest link bounds.
LinkPace pace_of(const Platform&, const Endpoints&);

}  // namespace plimsoll
