#pragma once
// Addresses of a schedule's buffers and workspaces as a file, for programs that run it from one block a device.

#include <filesystem>
#include <string>
#include <string_view>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/memory/addresses.h"

namespace plimsoll {

/// Planned for a schedule that is written, and judged. Throws BrokenPromise where the judge finds a fault.
Addresses judged_addresses(const Schedule&, const Platform&);

/// JSON: `blocks` by device, `buffers` and `workspaces` with the numbers that the schedule's file gives them.
void write_addresses(const std::filesystem::path&, const Schedule&, const Platform&, const Addresses&,
                     std::string_view made_by);

/// Which block is larger than the budget, or without one than its device, in one sentence; empty: none.
std::string beyond_block(const Schedule&, const Platform&, const Addresses&);

}  // namespace plimsoll
