#pragma once
// Where the steps of a schedule have their workspaces.

#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// By stream: the memory in which it computes; of copies, and of a place that the platform does not have, the device's.
std::vector<MemoryId> workspace_memories(const Schedule&, const Platform&);

}  // namespace plimsoll
