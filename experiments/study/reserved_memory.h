#pragma once
// What allocators could not take from the devices, in words.

#include <span>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/memory/replay.h"

namespace plimsoll {

/// For each device that ran out of memory `on DEVICE: ` and which request failed, and whether bytes or room in one
/// piece were missing; `reserved` is by device.
std::vector<std::string> out_of_memory(AllocatorKind, const Platform&, std::span<const ReservedPeak> reserved);

}  // namespace plimsoll
