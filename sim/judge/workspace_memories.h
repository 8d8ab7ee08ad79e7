#pragma once
// Where the steps of a schedule have their workspaces.

#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// By stream: the memory in which it computes; of copies, and of a place that the platform does not have, the device's.
inline std::vector<MemoryId> workspace_memories(const Schedule& schedule, const Platform& platform) {
  RouteFinder finder(platform);
  std::vector<MemoryId> memories;
  memories.reserve(schedule.streams.size());
  for (const Stream& stream : schedule.streams) {
    const MemoryId place = stream.way.computes() ? stream.way.from : place::device;
    memories.push_back(finder.memory_at(stream.device, place).value_or(platform[stream.device].memory));
  }
  return memories;
}

}  // namespace plimsoll
