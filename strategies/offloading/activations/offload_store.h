#pragma once
// The memory where activations go.

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"

namespace plimsoll {

/// What `to` names. Throws InputError where the platform has no such memory, or it is the device's own.
MemoryId offload_store(const PartTask&, const OffloadOptions&);

}  // namespace plimsoll
