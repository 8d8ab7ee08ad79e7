#pragma once
// Local moves on a tape, each judged by the event engine: keep what was computed again, or move it instead; keep what
// was moved; begin a copy back earlier or later.

#include <cstdint>
#include <optional>
#include <string_view>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// The fastest tape within the budget that so many trials find from a start that is within it; the start itself where
/// none is faster. Only tapes that leave parameters, gradients and optimizer states on the device are changed. Values
/// move in so many chunks at most.
PlannedTape improved(const PartTask&, PlannedTape start, Bytes budget, std::int64_t trials, std::string_view chunks);

}  // namespace plimsoll
