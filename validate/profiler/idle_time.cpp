#include "validate/profiler/idle_time.h"

#include <algorithm>
#include <tuple>

namespace plimsoll {

IdleTime idle_time(std::vector<BusyTime> busy, Nanoseconds iteration) {
  if (busy.empty()) return {};
  std::ranges::sort(busy, {}, [](const BusyTime& b) { return std::tuple(b.device, b.start, b.end); });
  Nanoseconds idle = 0, unlaunched = 0;
  std::size_t devices = 0;
  for (auto next = busy.begin(); next != busy.end();) {
    const std::uint32_t device = next->device;
    const Nanoseconds begin = next->start;
    Nanoseconds end = begin, gaps = 0;
    for (; next != busy.end() && next->device == device; ++next) {
      const Nanoseconds gap = std::max<Nanoseconds>(next->start - end, 0);
      gaps += gap;
      if (next->launched && *next->launched >= end) unlaunched += gap;
      end = std::max(end, next->end);
    }
    const Nanoseconds around = std::max<Nanoseconds>(iteration - (end - begin), 0);
    idle += gaps + around;
    unlaunched += around;
    ++devices;
  }
  const auto mean = [&](Nanoseconds sum) { return Seconds{seconds(sum).value / static_cast<double>(devices)}; };
  return {mean(idle), mean(unlaunched)};
}

}  // namespace plimsoll
