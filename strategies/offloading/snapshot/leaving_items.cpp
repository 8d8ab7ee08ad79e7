#include "strategies/offloading/snapshot/leaving_items.h"

#include <algorithm>
#include <cstdint>

#include "strategies/offloading/snapshot/sequence_memory.h"

namespace plimsoll {

std::optional<std::vector<OffloadItem>> leaving_items(OffloadModel& model, const CopyRate& out, Bytes budget,
                                                      std::uint32_t chunks) {
  std::vector<OffloadItem> items;
  const auto is_worth_it = [&](Bytes bytes) { return bytes / out.bandwidth >= out.latency && bytes > Bytes{0}; };
  for (const std::uint32_t g : saved_gaps(model)) {
    OffloadGap& gap = model.gaps[g];
    gap.made = gap.from;
    if (!gap.holds_positions() || !is_worth_it(gap.bytes)) continue;
    const std::uint32_t count = is_worth_it(Bytes{gap.bytes.count / chunks}) ? chunks : 1;
    for (std::uint32_t c = 0; c < count; ++c) items.push_back(chunk_of(model, g, {c, count}));
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
