#pragma once
// The option `to` of strategies that offload activations: the memory where they go.

#include "strategies/api/strategy.h"

namespace plimsoll {

/// What `to` names. Throws InputError where the platform has no such memory, or it is the device's own.
MemoryId offload_store(const PartTask&, const Options&);

bool is_memory_name(std::string_view);

inline constexpr OptionInfo store_option =
    text_option("to", "host", "host or the name of a memory of the platform",
                "memory to which values are offloaded: host, which the platform names for "
                "each device, or any other memory, also that of another device",
                is_memory_name);

}  // namespace plimsoll
