#pragma once
// What planners ask about the memory of a stage of a chain, where a table of bytes a layer does not say it.

#include <cstdint>
#include <functional>

namespace plimsoll {

/// Whether layers [first, last) fit a device that keeps `in_flight` micro-batches of 1F1B: its own one and, rounded up,
/// the devices behind the stage by those that share it. Unset: what the planner's own bytes say.
using RangeFits = std::function<bool(std::uint32_t first, std::uint32_t last, std::uint32_t in_flight)>;

/// What layers [first, last) take of a device that keeps `in_flight` micro-batches, whatever the order. Unset: what the
/// planner's own bytes say.
using RangeBytes = std::function<double(std::uint32_t first, std::uint32_t last, std::uint32_t in_flight)>;

}  // namespace plimsoll
