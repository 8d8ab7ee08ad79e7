#pragma once
// A placement's times and bytes found the slow way, straight from their definitions: what emulate() and memory_of() are
// held against.

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// The instant from which a value can be read on processor q: its maker's finish, and on another processor than the
/// maker's the time to send it, alone. What has no maker is there from 0.
Nanoseconds value_arrives(const OpDag&, const Machine&, std::uint32_t value, std::span<const std::uint32_t> on,
                          std::span<const Nanoseconds> finish, std::size_t q);

/// As emulate(): from one instant at which something finishes or arrives to the next, all ops scanned at each. An edge
/// that sends nothing lets its second op start from the finish of the first, on whatever processors.
Emulation emulate_by_instants(const OpDag&, const Machine&, std::span<const std::uint32_t> on, QueueOrder);

/// As memory_of(): at each instant at which something begins or ends, each thing is asked whether it is there.
/// Intervals are half-open: what ends at an instant is not there at it.
std::vector<std::int64_t> bytes_by_instants(const OpDag&, const Machine&, std::span<const std::uint32_t> on,
                                            std::span<const Nanoseconds> start, std::span<const Nanoseconds> finish);

}  // namespace plimsoll
