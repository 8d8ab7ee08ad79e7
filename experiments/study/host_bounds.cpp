#include "experiments/study/host_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/engine/program.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

std::set<MemoryId> memories_of_updates(const Schedule& schedule, const Platform& platform) {
  std::set<MemoryId> memories;
  RouteFinder finder(platform);
  for (const Stream& stream : schedule.streams) {
    if (!stream.way.computes_elsewhere()) continue;
    if (const std::optional<MemoryId> host = finder.memory_at(stream.device, stream.way.from)) memories.insert(*host);
  }
  return memories;
}

}  // namespace

std::vector<HostBound> host_bounds_used(const Schedule& schedule, const Platform& platform) {
  const auto has_bounds = [](const Memory& memory) { return memory.adam_is_bound || memory.bandwidth_is_bound; };
  if (std::ranges::none_of(platform.memories, has_bounds)) return {};
  const std::set<MemoryId> updating = memories_of_updates(schedule, platform);
  const std::vector<MemoryId> binding = memories_that_may_bind(schedule, platform);
  std::vector<HostBound> used;
  for (std::size_t m = 0; m < platform.memories.size(); ++m) {
    const Memory& memory = platform.memories[m];
    const auto id = id_at<MemoryId>(m);
    if (memory.adam_is_bound && updating.contains(id)) used.push_back({memory.name, "adam", *memory.adam});
    if (memory.bandwidth_is_bound && std::ranges::binary_search(binding, id)) {
      used.push_back({memory.name, "bandwidth", *memory.bandwidth});
    }
  }
  return used;
}

std::string sentence(const HostBound& bound) {
  return fmt::format("the {} of memory '{}' is an upper bound, not a measurement: {} ({})",
                     bound.rate == "adam" ? "update rate" : "bandwidth", bound.memory, format_bandwidth(bound.value),
                     bound.rate);
}

}  // namespace plimsoll
