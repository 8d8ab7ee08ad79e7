#pragma once
// A copy between two memories at the pace of a link.

#include <cstddef>

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

/// Piece by piece, each no sooner there than the link would have it.
void paced_copy(std::byte* to, const std::byte* from, Bytes, LinkPace);

/// Makes the calling thread's sleeps end when they should, to about a microsecond.
void sleep_precisely();

}  // namespace plimsoll
