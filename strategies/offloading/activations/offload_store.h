#pragma once
// The option `to` of strategies that offload activations: the memory where they go.

#include "strategies/strategy.h"

namespace plimsoll {

/// What `to` names. Throws InputError where the platform has no such memory, or it is the device's own.
MemoryId offload_store(const PartTask&, const Options&);

bool is_memory_name(std::string_view);

inline constexpr OptionInfo store_option{
    "to", "host", "host or the name of a memory of the platform",
    "where values go: to what the platform says is the device's host, or to any memory, also another device's",
    is_memory_name};

}  // namespace plimsoll
