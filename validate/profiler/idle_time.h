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

/// Of an iteration, in the mean over the devices that work in it.
struct IdleTime {
  Seconds idle;
  Seconds unlaunched;  ///< of that, with nothing launched that could have run
};

// A device waits for the host where what it runs next was launched after all before it was over, before the first and
// behind the last of its work, and where the host's part of an iteration is longer than the devices'.
class BusyTimes {
 public:
  explicit BusyTimes(std::vector<BusyTime>);

  /// Between two dates, and for `more` time in which nothing was launched.
  IdleTime idle(Nanoseconds begin, Nanoseconds end, Nanoseconds more = 0) const;

 private:
  std::vector<std::vector<BusyTime>> devices_;  // stretches by start that neither meet nor overlap
};

/// From this share of an iteration on in which a device waits for launches, the host binds it.
inline constexpr double host_bound_share = 0.1;

}  // namespace plimsoll
