#pragma once
// What more of a machine is worth: by how much the bound on an iteration's time falls.

#include <optional>

#include "sim/bound/iteration_bound.h"

namespace plimsoll {

inline constexpr Bytes more_memory{1'000'000'000};
inline constexpr BytesPerSecond more_of_links{10e9};
inline constexpr double faster_host = 2;

struct BoundPrices {
  Seconds memory;  ///< of so much more of the device's memory
  std::optional<Seconds>
      links;                    ///< of links that are so much faster, all on the way to the host; unset: nothing leaves
  std::optional<Seconds> host;  ///< of a memory of the host that is so many times as fast; unset: it does not limit
};

/// Of a budget within which something fits. The rules' `out` is 0, or what the platform has (ways_out).
BoundPrices bound_prices(const Problem&, DeviceId, const BoundRules&, Bytes budget);

}  // namespace plimsoll
