#include "strategies/offloading/activations/offload_selection.h"

#include <algorithm>

#include "sim/core/tape.h"
#include "strategies/api/front.h"

namespace plimsoll {
namespace {

/// Best first; equal ones stay in order.
void sort_by(const OffloadModel& model, SelectionRule rule, std::vector<OffloadItem>& items) {
  const std::vector<Seconds> starts = starts_without_copies(model);
  const auto spare = [&](const OffloadItem& item) { return free_time(model, starts, item).value; };
  const auto made = [&](const OffloadItem& item) { return model.gaps[item.gap].made; };
  std::ranges::stable_sort(items, [&](const OffloadItem& a, const OffloadItem& b) {
    if (rule == SelectionRule::first_made) return made(a) < made(b);
    const double spare_a = spare(a), spare_b = spare(b);
    if (rule == SelectionRule::free_time) return spare_a > spare_b;
    if (spare_a >= 0 || spare_b >= 0) {
      return spare_a >= 0 && (spare_b < 0 || a.bytes > b.bytes);
    }
    return static_cast<double>(a.bytes.count) * -spare_b > static_cast<double>(b.bytes.count) * -spare_a;
  });
}

}  // namespace

Seconds free_time(const OffloadModel& model, std::span<const Seconds> starts, const OffloadItem& item) {
  const OffloadGap& gap = model.gaps[item.gap];
  return starts[gap.until] - starts[gap.from + 1] - model.out.time(item.bytes) - model.in.time(item.bytes);
}

std::optional<std::size_t> Selection::needed(Bytes budget) const {
  const auto enough = std::ranges::find_if(peaks, [&](Bytes peak) { return peak <= budget; });
  if (enough == peaks.end()) return std::nullopt;
  return static_cast<std::size_t>(enough - peaks.begin());
}

Selection select_items(const OffloadModel& model, std::vector<OffloadItem> items, SelectionRule rule) {
  return select_items(model, std::move(items), rule, model.memory);
}

Selection select_items(const OffloadModel& model, std::vector<OffloadItem> items, SelectionRule rule,
                       std::vector<Bytes> needed) {
  sort_by(model, rule, items);
  std::vector<bool> selected(items.size(), false);
  Selection selection;
  while (true) {
    const auto fullest = std::ranges::max_element(needed);
    selection.peaks.push_back(fullest == needed.end() ? Bytes{0} : *fullest);
    const auto p = static_cast<std::uint32_t>(fullest - needed.begin());
    std::size_t best = 0;
    const auto covers = [&](std::size_t i) {
      const OffloadGap& gap = model.gaps[items[i].gap];
      return !selected[i] && gap.from < p && p < gap.until;
    };
    while (best < items.size() && !covers(best)) ++best;
    if (best == items.size()) return selection;
    selected[best] = true;
    selection.items.push_back(items[best]);
    const OffloadGap& gap = model.gaps[items[best].gap];
    for (std::uint32_t q = gap.from + 1; q < gap.until; ++q) needed[q] -= items[best].bytes;
  }
}

std::optional<PlacedCopies> place_chosen(const OffloadModel& model, const std::vector<bool>& chosen,
                                         std::uint32_t chunks, Bytes budget) {
  std::vector<OffloadItem> items, others;
  std::vector<Bytes> needed = model.memory;
  for (const OffloadItem& item : offload_items(model, chunks)) {
    const OffloadGap& gap = model.gaps[item.gap];
    (chosen[item.gap] ? items : others).push_back(item);
    for (std::uint32_t p = gap.from + 1; chosen[item.gap] && p < gap.until; ++p) needed[p] -= item.bytes;
  }
  const Selection more = select_items(model, std::move(others), SelectionRule::first_made, std::move(needed));
  const std::size_t count = more.needed(budget).value_or(more.items.size());
  items.insert(items.end(), more.items.begin(), more.items.begin() + static_cast<std::ptrdiff_t>(count));
  std::ranges::stable_sort(items, {}, &OffloadItem::gap);
  return placed_items(model, items, budget);
}

std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::optional<std::int64_t> wanted, std::size_t positions,
                                 std::size_t fewest) {
  constexpr std::size_t effort = 24'000;
  const std::size_t usual = std::clamp<std::size_t>(effort / std::max<std::size_t>(positions, 1), fewest, 40);
  const std::int64_t asked = wanted.value_or(static_cast<std::int64_t>(usual));
  const auto count = static_cast<std::uint32_t>(std::min(asked, (most - least).count));
  return budgets_between(least, most, count);
}

}  // namespace plimsoll
