#include "validate/profiler/idle_time.h"

#include <algorithm>
#include <tuple>

namespace plimsoll {

BusyTimes::BusyTimes(std::vector<BusyTime> busy) {
  std::ranges::sort(busy, {}, [](const BusyTime& b) { return std::tuple(b.device, b.start, b.end); });
  for (const BusyTime& each : busy) {
    if (devices_.empty() || devices_.back().front().device != each.device) devices_.emplace_back();
    std::vector<BusyTime>& stretches = devices_.back();
    if (stretches.empty() || each.start > stretches.back().end) {
      stretches.push_back(each);
    } else {
      stretches.back().end = std::max(stretches.back().end, each.end);
    }
  }
}

IdleTime BusyTimes::idle(Nanoseconds begin, Nanoseconds end, Nanoseconds more) const {
  Nanoseconds idle = 0, unlaunched = 0;
  std::size_t working = 0;
  for (const std::vector<BusyTime>& stretches : devices_) {
    const auto first = std::ranges::upper_bound(stretches, begin, {}, &BusyTime::end);
    if (first == stretches.end() || first->start >= end) continue;
    ++working;
    Nanoseconds at = begin;  // until here it is known
    auto next = first;
    for (; next != stretches.end() && next->start < end; ++next) {
      const Nanoseconds gap = std::max<Nanoseconds>(next->start - at, 0);
      idle += gap;
      const bool is_first = next == stretches.begin();
      if (is_first || (next->launched && *next->launched >= std::prev(next)->end)) unlaunched += gap;
      at = std::min(next->end, end);
    }
    idle += end - at + more;
    const bool waits = next == stretches.end() || (next->launched && *next->launched >= std::prev(next)->end);
    unlaunched += more + (waits ? end - at : 0);
  }
  if (working == 0) return {seconds(end - begin + more), seconds(end - begin + more)};
  const auto mean = [&](Nanoseconds sum) { return Seconds{seconds(sum).value / static_cast<double>(working)}; };
  return {mean(idle), mean(unlaunched)};
}

}  // namespace plimsoll
