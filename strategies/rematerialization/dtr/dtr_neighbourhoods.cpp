#include "strategies/rematerialization/dtr/dtr_neighbourhoods.h"

#include <algorithm>

namespace plimsoll {

void DtrNeighbourhoods::add_storage() {
  for (std::vector<Side>& sides : side_) sides.emplace_back();
  awaited_in_.push_back(0);
  knows_in_.push_back(0);
  for (Marks* marks : {&inside_, &border_, &above_awaited_}) marks->grow(awaited_in_.size());
}

void DtrNeighbourhoods::begin_call() {
  ++call_;
  awaited_.clear();
}

void DtrNeighbourhoods::await(std::uint32_t result) {
  awaited_.push_back(result);
  awaited_in_[result] = call_;
}

/// The evicted storages that are reached, while they are within the limit; leaves the resident ones where that ends in
/// resident_.
DtrNeighbourhoods::Found DtrNeighbourhoods::search(Direction direction, std::uint32_t from, Limit limit) {
  Found found;
  inside_.clear();
  border_.clear();
  resident_.clear();
  stack_.assign(1, from);
  const auto& beyond = direction == down ? storages_.children : storages_.parents;
  while (!stack_.empty() && found.cost <= limit.cost && found.storages <= limit.storages) {
    const std::uint32_t s = stack_.back();
    stack_.pop_back();
    for (const std::uint32_t next : beyond[s]) {
      if (storages_.material[next]) {
        if (border_.add(next)) resident_.push_back(next);
      } else if (!is_awaited(next) && inside_.add(next)) {
        found.cost += storages_.compute[next];
        ++found.storages;
        stack_.push_back(next);
      }
    }
  }
  found.all = stack_.empty();
  return found;
}

void DtrNeighbourhoods::sharpen(std::uint32_t s) {
  constexpr std::int64_t step = 4;
  const std::int64_t known = storages_.compute[s] + below(s) + above(s);
  for (const Direction direction : {down, up}) {
    if (is_exact(direction, s)) continue;
    Side& side = side_[direction][s];
    std::int64_t seen = -side.overdue;
    if (direction == down && knows_awaited(s)) {
      for (const std::uint32_t result : awaited_) seen += storages_.compute[result];
    }
    const Found found = search(direction, s, {.cost = step * known + side.overdue});
    side.cost = std::max(side.cost, found.cost + seen);
    if (!found.all) return;
    side.exact_at = now_;
  }
}

/// A resident storage's side is built anew after it lost up to so much.
void DtrNeighbourhoods::lose(Direction direction, std::uint32_t s, std::int64_t most, Exactly exactly) {
  Side& side = side_[direction][s];
  side.cost = std::max<std::int64_t>(side.cost - most, 0);
  if (exactly == Exactly::no || side.overdue > 0) side.exact_at = 0;
  side.overdue = 0;
  changes.push_back(s);
}

void DtrNeighbourhoods::became_dearer(std::uint32_t evicted, std::int64_t nanoseconds) {
  dearer_in_ = call_;
  search(up, evicted);
  for (const std::uint32_t s : resident_) side_[down][s].overdue += nanoseconds;
  search(down, evicted);
  for (const std::uint32_t s : resident_) side_[up][s].overdue += nanoseconds;
}

void DtrNeighbourhoods::evicted(std::uint32_t storage) {
  ++now_;
  for (std::vector<Side>& sides : side_) sides[storage] = {};
  if (!knows_awaited(storage)) return;
  search(up, storage);
  for (const std::uint32_t s : resident_) knows_in_[s] = call_;
}

/// The results of the call that began: no neighbourhood but those built anew since then had them.
void DtrNeighbourhoods::made(std::span<const std::uint32_t> storages) {
  for (const std::uint32_t s : storages) {
    for (const std::uint32_t parent : storages_.parents[s]) {
      if (knows_awaited(parent))
        lose(down, parent, side_[down][parent].cost, Exactly::no);
      else if (side_[down][parent].overdue > 0)
        lose(down, parent, 0, Exactly::no);
    }
  }
  awaited_.clear();
}

void DtrNeighbourhoods::materialized(std::span<const std::uint32_t> storages) {
  if (storages.empty()) return;
  if (is_awaited(storages.front())) return made(storages);
  above_awaited_.clear();
  if (!awaited_.empty()) {
    search(up, awaited_.front());  // they all have the same parents
    for (const std::uint32_t s : resident_) above_awaited_.add(s);
  }
  const auto learn = [&](std::uint32_t s) { knows_in_[s] = above_awaited_.has(s) ? call_ : 0; };
  for (const std::uint32_t storage : storages) {
    side_[down][storage] = side_[up][storage] = {};
    learn(storage);
    const Found above = search(up, storage);
    for (const std::uint32_t s : resident_) {
      learn(s);
      lose(down, s, side_[down][s].cost, Exactly::no);
    }
    lose_above(storage, above);
  }
}

/// To those below, or where these are many and their exact costs matter little, to all next to the component.
void DtrNeighbourhoods::lose_above(std::uint32_t storage, const Found& above) {
  const std::int64_t most = above.cost + storages_.compute[storage];
  const std::span<const std::uint32_t> border = components_.border(storage);
  Limit limit;
  if (dearer_in_ != call_) limit.storages = border.size();
  if (search(down, storage, limit).all) {
    const Exactly exactly = above.storages == 0 ? Exactly::yes : Exactly::no;
    for (const std::uint32_t s : resident_) lose(up, s, most, exactly);
  } else {
    for (const std::uint32_t s : border) lose(up, s, most, Exactly::no);
  }
}

}  // namespace plimsoll
