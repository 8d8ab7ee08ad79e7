#pragma once
// Which figures of a host that a result rests on are upper bounds of the platform's file, not measurements.

#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct HostBound {
  std::string memory;
  std::string rate;  ///< the key in the platform's file: `adam` or `bandwidth`
  BytesPerSecond value;
};

/// By memory. `adam` where an update runs on the host, `bandwidth` where it may hold back a copy or an update.
std::vector<HostBound> host_bounds_used(const Schedule&, const Platform&);

/// "the update rate of memory 'host' is an upper bound, not a measurement: 12.80 GB/s (adam)"
std::string sentence(const HostBound&);

}  // namespace plimsoll
