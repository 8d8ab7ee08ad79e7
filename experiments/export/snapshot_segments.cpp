#include "experiments/export/snapshot_segments.h"

#include <limits>

namespace plimsoll {

bool HeldRange::is_of_one_segment_with(const HeldRange& other) const {
  return expandable && other.expandable && stream == other.stream && pool == other.pool && small == other.small;
}

bool HeldMemory::add(HeldRange range) {
  const auto after = ranges_.lower_bound(range.begin);
  const bool is_new = !around(range.begin) && (after == ranges_.end() || after->first >= range.end);
  if (const auto next = ranges_.find(range.end); next != ranges_.end() && next->second.is_of_one_segment_with(range)) {
    range.end = next->second.end;
    ranges_.erase(next);
  }
  if (const auto before = around(range.begin - 1); before && before->is_of_one_segment_with(range)) {
    range.begin = before->begin;
  }
  ranges_[range.begin] = range;
  return is_new;
}

bool HeldMemory::take(std::int64_t address, Bytes size) {
  const std::optional<HeldRange> held = around(address);
  const std::int64_t end = address + size.count;
  if (!held || end > held->end || (!held->expandable && held->size() != size)) return false;
  ranges_.erase(held->begin);
  const auto keep = [&](std::int64_t from, std::int64_t to) {
    if (from >= to) return;
    HeldRange& kept = ranges_[from] = *held;
    kept.begin = from;
    kept.end = to;
  };
  keep(held->begin, address);
  keep(end, held->end);
  return true;
}

std::optional<HeldRange> HeldMemory::around(std::int64_t address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const HeldRange& before = std::prev(after)->second;
  return address < before.end ? std::optional(before) : std::nullopt;
}

HeldRange HeldMemory::like_its_neighbour(std::int64_t address, Bytes size, std::int64_t stream) const {
  HeldRange made{
      .stream = stream, .small = size.count % CachingAllocator::large_segment.count != 0, .expandable = true};
  std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [begin, held] : ranges_) {
    const std::int64_t away = begin > address ? begin - address : address - begin;
    if (!held.expandable || held.stream != stream || away >= nearest) continue;
    nearest = away;
    made = held;
  }
  made.begin = address;
  made.end = address + size.count;
  return made;
}

}  // namespace plimsoll
