#pragma once
// Options that offloading strategies share, each with the rows of those that it heeds in its table, and the
// memory where activations go.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strategies/api/options.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

/// Of strategies that copy values in chunks.
struct ChunkOptions {
  std::uint32_t chunks = 4;
};

/// Of strategies that offload activations.
struct OffloadOptions : ChunkOptions {
  std::optional<std::int64_t> levels;  ///< of memory at which plans are made
  std::string to = "host";             ///< the memory where they go
};

/// Of strategies that update parameters on the host.
struct HostUpdateOptions {
  bool overlap = false;  ///< an update begins as soon as its gradient has arrived
};

bool is_memory_name(std::string_view);

inline constexpr auto copy_chunks_option = option_of<&ChunkOptions::chunks>({
    .name = "chunks",
    .least = 1,
    .most = 64,
    .help = "number of chunks of a value; each chunk is copied and freed on its own",
});

inline constexpr auto levels_option = option_of<&OffloadOptions::levels>({
    .name = "levels",
    .least = 1,
    .most = 1000,
    .help = "number of memory levels at which plans are made, the same for all budgets; "
            "auto: 40, fewer for more than 600 ops, at least 8",
});

inline constexpr auto store_option = option_of<&OffloadOptions::to>({
    .name = "to",
    .values = "host or the name of a memory of the platform",
    .help = "memory to which values are offloaded: host, which the platform names for each device, or any other "
            "memory, such as another device's",
    .allowed = is_memory_name,
});

inline constexpr auto overlap_option = option_of<&HostUpdateOptions::overlap>({
    .name = "overlap",
    .words = "off on",
    .values = "on or off",
    .help =
        "on: an update on the host begins as soon as its gradient has arrived; off: after the whole backward, as in "
        "DeepSpeed",
});

// The memory where activations go.

/// What `to` names. Throws InputError where the platform has no such memory, or it is the device's own.
MemoryId offload_store(const PartTask&, const OffloadOptions&);

}  // namespace plimsoll
