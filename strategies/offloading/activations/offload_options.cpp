#include "strategies/offloading/activations/offload_options.h"

#include <fmt/format.h>

#include "sim/io/input_error.h"

namespace plimsoll {

MemoryId offload_store(const PartTask& task, const OffloadOptions& options) {
  const std::string_view name = options.to;
  if (name == "host") return place::host;
  const Platform& platform = task.problem.platform;
  const DeviceId device = task.part().device;
  std::vector<std::string_view> others{"host"};
  for (std::size_t m = 0; m < platform.memories.size(); ++m) {
    if (id_at<MemoryId>(m) == platform[device].memory) continue;
    if (platform.memories[m].name != "host") others.emplace_back(platform.memories[m].name);
    if (name != platform.memories[m].name) continue;
    return memory_at(platform, device, place::host) == id_at<MemoryId>(m) ? place::host : id_at<MemoryId>(m);
  }
  if (name == platform[device].name) {
    throw InputError(fmt::format("to={}: that is where the values are; expected another memory", name));
  }
  throw InputError(fmt::format("to={}: platform '{}' has no such memory{}; expected {}", name, platform.name,
                               suggestion(name, others), alternatives(others)));
}

bool is_memory_name(std::string_view text) {
  return !text.empty();
}

}  // namespace plimsoll
