#pragma once
// How long devices had nothing to do, and whether that was because the host had not launched anything.

#include <vector>

#include "validate/profiler/chrome_trace.h"

namespace plimsoll {

/// A stretch of time in which a device worked, on whatever stream.
struct BusyTime {
  std::uint32_t device = 0;
  Nanoseconds start = 0, end = 0;
  std::optional<Nanoseconds> launched;  ///< when the host asked for it, where that is known
};

/// Of an iteration, in the mean over its devices.
struct IdleTime {
  Seconds idle;
  Seconds unlaunched;  ///< of that, with nothing launched that could have run
};

// A device waits for the host where what it runs next was launched after all before it was over, and where the host's
// part of the iteration is longer than the device's own.
/// `iteration`: how long it lasts, at least from the first start to the last end.
IdleTime idle_time(std::vector<BusyTime>, Nanoseconds iteration);

/// From this share of an iteration on in which a device waits for launches, the host binds it.
inline constexpr double host_bound_share = 0.1;

}  // namespace plimsoll
