#pragma once
// Runs that a compression program adds now and then to find how many bits each saved value needs: what they take in the
// mean of all iterations, and in the worst one.

#include <cstdint>
#include <string_view>

#include "strategies/compression/packing.h"

namespace plimsoll {

/// For every packed value so many forwards and backwards more, once every so many iterations.
struct SensitivityRuns {
  std::int64_t of_value = 3, every = 1000;
};

/// Charges the mean to the packing of each value, and notes the worst iteration; nothing where `every` is 0. A run
/// takes what the tape takes without packing.
void charge(PackingChoice&, std::string_view strategy, const SensitivityRuns&);

}  // namespace plimsoll
