#pragma once
// Levels of memory at which plans are made for all budgets: evenly between what is needed at least and at most.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// So many as are `wanted`; unset: 40, fewer for tapes of more than 600 positions, down to `fewest`.
std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::optional<std::int64_t> wanted, std::size_t positions,
                                 std::size_t fewest = 8);

}  // namespace plimsoll
