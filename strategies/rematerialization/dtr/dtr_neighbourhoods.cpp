#include "strategies/rematerialization/dtr/dtr_neighbourhoods.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

std::uint32_t DtrComponents::add_component(std::int64_t compute) {
  const auto id = static_cast<std::uint32_t>(components_.size());
  components_.push_back({.parent = id, .compute = compute, .border = {}});
  roots_.grow(components_.size());
  return id;
}

void DtrComponents::add_storage() {
  component_of_.push_back(add_component(0));
  seen_.grow(component_of_.size());
  in_border_.grow(component_of_.size());
}

std::uint32_t DtrComponents::root_above(std::uint32_t c) {
  while (components_[c].parent != c) {
    components_[c].parent = components_[components_[c].parent].parent;
    c = components_[c].parent;
  }
  return c;
}

void DtrComponents::add_edge(std::uint32_t parent, std::uint32_t child) {
  for (const auto& [in, out] : {std::pair(parent, child), std::pair(child, parent)}) {
    if (!storages_.material[in] || storages_.material[out]) continue;
    const std::uint32_t root = root_of(out);
    components_[root].border.push_back(in);
    touched_.push_back(root);
  }
}

void DtrComponents::unite(std::uint32_t child_root, std::uint32_t root) {
  Component &from = components_[child_root], &into = components_[root];
  from.parent = root;
  into.compute += from.compute;
  if (from.border.size() > into.border.size()) std::swap(from.border, into.border);
  into.border.insert(into.border.end(), from.border.begin(), from.border.end());
  from.border = {};
}

void DtrComponents::evicted(std::uint32_t storage) {
  const std::uint32_t root = add_component(storages_.compute[storage]);
  component_of_[storage] = root;
  storages_.for_material_neighbours(storage, [&](std::uint32_t n) { components_[root].border.push_back(n); });
  storages_.for_evicted_neighbours(storage, [&](std::uint32_t n) {
    const std::uint32_t other = root_of(n);
    if (other != root) unite(other, root);
  });
  touched_.push_back(root);
}

void DtrComponents::materialized(std::span<const std::uint32_t> storages) {
  for (const std::uint32_t s : storages) {
    const std::uint32_t root = root_of(s);
    components_[root].compute -= storages_.compute[s];
    touched_.push_back(root);
    storages_.for_evicted_neighbours(s, [&](std::uint32_t n) { components_[root_of(n)].border.push_back(s); });
  }
}

std::span<const std::uint32_t> DtrComponents::border(std::uint32_t storage) {
  return clean_border(root_of(storage));
}

std::vector<std::uint32_t>& DtrComponents::clean_border(std::uint32_t root) {
  std::vector<std::uint32_t>& border = components_[root].border;
  in_border_.clear();
  std::erase_if(border, [&](std::uint32_t s) { return !storages_.material[s] || !in_border_.add(s); });
  return border;
}

std::int64_t DtrComponents::beside(std::uint32_t storage) {
  std::int64_t sum = 0;
  roots_.clear();
  storages_.for_evicted_neighbours(storage, [&](std::uint32_t n) {
    const std::uint32_t root = root_of(n);
    if (roots_.add(root)) sum += components_[root].compute;
  });
  return sum;
}

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
