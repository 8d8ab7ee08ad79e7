#include "sim/model/device_classes.h"

#include <algorithm>

namespace plimsoll {

bool have_same_rates(const Device& a, const Device& b) {
  return a.model == b.model && a.peak == b.peak && a.memory_bandwidth == b.memory_bandwidth && a.adam == b.adam &&
         a.launch_overhead == b.launch_overhead && a.host_launch == b.host_launch &&
         a.takes_trace_times == b.takes_trace_times && a.efficiency == b.efficiency;
}

DeviceClasses device_classes(const Platform& platform, std::size_t devices) {
  DeviceClasses made;
  for (std::size_t d = 0; d < devices; ++d) {
    const auto same = [&](DeviceId other) { return have_same_rates(platform[other], platform.devices[d]); };
    const auto found = std::ranges::find_if(made.one, same);
    made.of.push_back(static_cast<std::uint32_t>(found - made.one.begin()));
    if (found == made.one.end()) {
      made.one.push_back(id_at<DeviceId>(d));
      made.count.push_back(0);
    }
    ++made.count[made.of.back()];
  }
  return made;
}

}  // namespace plimsoll
