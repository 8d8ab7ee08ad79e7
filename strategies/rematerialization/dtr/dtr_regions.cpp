#include "strategies/rematerialization/dtr/dtr_regions.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

void DtrRegions::add_storage() {
  for (std::vector<Region>& direction : regions_) direction.emplace_back();
  inside_.grow(regions_[down].size());
  border_.grow(regions_[down].size());
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
  changes.push_back(base);
}

void DtrRegions::materialized(std::span<const std::uint32_t> storages) {
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
    for (const std::uint32_t s : list) rebuild(direction, s);
  }
}

}  // namespace plimsoll
