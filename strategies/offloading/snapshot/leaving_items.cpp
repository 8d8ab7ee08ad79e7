#include "strategies/offloading/snapshot/leaving_items.h"

#include <algorithm>
#include <cstdint>

#include "strategies/offloading/snapshot/sequence_memory.h"

namespace plimsoll {

std::optional<std::vector<OffloadItem>> leaving_items(OffloadModel& model, const CopyRate& out, Bytes budget) {
  std::vector<OffloadItem> items;
  for (const std::uint32_t g : saved_gaps(model)) {
    OffloadGap& gap = model.gaps[g];
    gap.made = gap.from;
    const bool is_worth_it = gap.bytes / out.bandwidth >= out.latency && gap.bytes > Bytes{0};
    if (gap.holds_positions() && is_worth_it) items.push_back({g, {}, gap.bytes});
  }
  std::vector<std::int64_t> memory;
  for (const Bytes bytes : model.memory) memory.push_back(bytes.count);
  RangeMaximum left(memory);
  std::vector<OffloadItem> leaving;
  while (left.most() > budget.count) {
    const std::size_t full = left.where();
    const auto covers = [&](const OffloadItem& item) {
      return model.gaps[item.gap].from < full && full < model.gaps[item.gap].until;
    };
    const auto first = std::ranges::find_if(items, covers);
    if (first == items.end()) return std::nullopt;
    const OffloadGap& gap = model.gaps[first->gap];
    left.add(gap.from + 1, gap.until, -first->bytes.count);
    leaving.push_back(*first);
    items.erase(first);
  }
  return leaving;
}

}  // namespace plimsoll
