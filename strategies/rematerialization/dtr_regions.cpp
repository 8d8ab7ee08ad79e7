#include "strategies/rematerialization/dtr_regions.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

void DtrRegions::add_storage() {
  for (std::vector<Region>& direction : regions_) direction.emplace_back();
  inside_.grow(regions_[down].size());
  border_.grow(regions_[down].size());
  awaited_.grow(regions_[down].size());
}

void DtrRegions::absorb(Direction direction, std::uint32_t base, std::uint32_t storage) {
  Region& region = regions_[direction][base];
  const Region& other = regions_[direction][storage];
  inside_.clear();
  border_.clear();
  for (const std::uint32_t s : region.interior) inside_.add(s);
  std::erase(region.frontier, storage);
  for (const std::uint32_t s : region.frontier) border_.add(s);
  for (const std::uint32_t s : other.frontier) {
    if (border_.add(s)) region.frontier.push_back(s);
  }
  const auto take = [&](std::uint32_t s) {
    if (!inside_.add(s)) return;
    region.interior.push_back(s);
    region.compute += storages_.compute[s];
  };
  for (const std::uint32_t s : other.interior) take(s);
  take(storage);
  region.exact_in = std::min(region.exact_in, other.exact_in);
  changes.push_back(base);
}

void DtrRegions::evicted(std::uint32_t storage) {
  Region &below = regions_[down][storage], &above = regions_[up][storage];
  for (const std::uint32_t s : above.frontier) absorb(down, s, storage);
  for (const std::uint32_t s : below.frontier) absorb(up, s, storage);
  for (Region* region : {&below, &above}) {
    region->interior.clear();
    region->frontier.clear();
    region->compute = 0;
    region->exact_in = epoch_;
  }
}

void DtrRegions::rebuild(Direction direction, std::uint32_t base) {
  Region& region = regions_[direction][base];
  region.interior.clear();
  region.frontier.clear();
  region.compute = 0;
  inside_.clear();
  border_.clear();
  stack_.assign(1, base);
  while (!stack_.empty()) {
    const std::uint32_t s = stack_.back();
    stack_.pop_back();
    for (const std::uint32_t next : direction == down ? storages_.children[s] : storages_.parents[s]) {
      if (storages_.material[next]) {
        if (next != base && border_.add(next)) region.frontier.push_back(next);
      } else if (inside_.add(next)) {
        region.compute += storages_.compute[next];
        region.interior.push_back(next);
        stack_.push_back(next);
      }
    }
  }
  region.exact_in = epoch_;
  changes.push_back(base);
}

/// Whether building anew would give what is there.
bool DtrRegions::as_if_new(Direction direction, const Region& region) const {
  if (!trusted_ || region.exact_in != epoch_) return false;
  return direction == up || std::ranges::none_of(region.interior, [&](std::uint32_t s) { return awaited_.has(s); });
}

/// What building anew comes to where a storage with nothing beyond it became resident: one more at the border.
void DtrRegions::gain_leaf(Direction direction, std::uint32_t base, std::uint32_t leaf) {
  Region& region = regions_[direction][base];
  if (!as_if_new(direction, region) || std::ranges::find(region.interior, leaf) != region.interior.end()) {
    rebuild(direction, base);
  } else if (std::ranges::find(region.frontier, leaf) == region.frontier.end()) {
    region.frontier.push_back(leaf);
  }
}

/// What building anew comes to where the storage that became resident had nothing evicted beyond it: it moves to the
/// border, and of its own neighbours beyond those stay there that the region reaches without it.
void DtrRegions::lose(Direction direction, std::uint32_t base, std::uint32_t storage) {
  Region& region = regions_[direction][base];
  const auto place = std::ranges::find(region.interior, storage);
  if (!as_if_new(direction, region) || !regions_[direction][storage].interior.empty() ||
      place == region.interior.end()) {
    rebuild(direction, base);
    return;
  }
  *place = region.interior.back();
  region.interior.pop_back();
  region.compute -= storages_.compute[storage];
  inside_.clear();
  inside_.add(base);
  for (const std::uint32_t s : region.interior) inside_.add(s);
  const auto& beyond = direction == down ? storages_.children : storages_.parents;
  const auto& before = direction == down ? storages_.parents : storages_.children;
  border_.clear();
  for (const std::uint32_t s : beyond[storage]) {
    const auto reaches = [&](std::uint32_t from) { return from != storage && inside_.has(from); };
    if (!std::ranges::any_of(before[s], reaches)) border_.add(s);
  }
  std::erase_if(region.frontier, [&](std::uint32_t s) { return border_.has(s) || s == storage; });
  region.frontier.push_back(storage);
  changes.push_back(base);
}

void DtrRegions::materialized(std::span<const std::uint32_t> storages) {
  if (std::ranges::all_of(storages, [&](std::uint32_t s) { return storages_.children[s].empty(); })) {
    for (const std::uint32_t leaf : storages) {
      rebuild(down, leaf);
      rebuild(up, leaf);
      for (const std::uint32_t s : regions_[up][leaf].frontier) gain_leaf(down, s, leaf);
    }
    return;
  }
  for (std::vector<std::uint32_t>& list : affected_) list.clear();
  for (const std::uint32_t s : storages) {
    rebuild(down, s);
    rebuild(up, s);
    const auto& above = regions_[up][s].frontier;
    const auto& below = regions_[down][s].frontier;
    affected_[down].insert(affected_[down].end(), above.begin(), above.end());
    affected_[up].insert(affected_[up].end(), below.begin(), below.end());
  }
  for (const Direction direction : {down, up}) {
    std::vector<std::uint32_t>& list = affected_[direction];
    if (storages.size() > 1) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    for (const std::uint32_t s : list) {
      if (storages.size() == 1) {
        lose(direction, s, storages.front());
      } else {
        rebuild(direction, s);
      }
    }
  }
}

}  // namespace plimsoll
