#pragma once
// Addresses of a schedule's buffers and workspaces as a file, for programs that run it from one block a device.

#include <filesystem>
#include <string>
#include <string_view>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/io/json/json.h"
#include "sim/memory/addresses.h"

namespace plimsoll {

inline constexpr std::string_view addresses_format = "plimsoll.addresses.v1";

/// Planned for a schedule, and judged. Throws BrokenPromise where the judge finds a fault.
Addresses judged_addresses(const Schedule&, const Platform&);

/// JSON: `blocks` by device, `buffers` and `workspaces` with the numbers that the schedule's file gives them.
void write_addresses(const std::filesystem::path&, const Schedule&, const Platform&, const Addresses&,
                     std::string_view made_by);

/// A file of write_addresses(), read for the schedule and judged: whoever made it, it is safe to run by. Throws
/// InputError where it is of another schedule, incomplete, or wrong.
Addresses read_addresses(const std::filesystem::path&, const Schedule&, const Platform&);

/// Of each device's block its key in the file.
Json blocks_json(const Platform&, const Addresses&);

/// `the largest block has 10 B, of which 8 B are live at once`
std::string largest_block(const Addresses&);

/// Which block is larger than the budget, or without one than its device, in one sentence; empty: none.
std::string beyond_block(const Schedule&, const Platform&, const Addresses&);

}  // namespace plimsoll
