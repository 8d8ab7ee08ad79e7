#pragma once
// How many micro-batches of a part are between two of its pieces, at most, by the order of its device.

#include <cstdint>
#include <vector>

#include "sim/core/partition.h"

namespace plimsoll {

struct Waiting {
  std::uint32_t in_flight =
      1;                      ///< whose forward has begun and whose backward has not ended, and that are on the device
  std::uint32_t weights = 0;  ///< whose backward has ended and whose weight gradients are not made
  friend auto operator<=>(const Waiting&, const Waiting&) = default;
};

/// By part.
std::vector<Waiting> waiting_in(const Partition&);

}  // namespace plimsoll
