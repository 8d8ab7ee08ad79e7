#include "sim/judge/workspace_memories.h"

namespace plimsoll {

std::vector<MemoryId> workspace_memories(const Schedule& schedule, const Platform& platform) {
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
