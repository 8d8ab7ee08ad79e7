#include "strategies/rematerialization/dtr/dtr_components.h"

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

}  // namespace plimsoll
