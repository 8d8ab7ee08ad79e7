#pragma once
// The storages of a running program as the heuristics see them: what they depend on, what they cost, what is evicted.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace plimsoll {

/// Storages that can be evicted, and those that are never evicted beside them; the latter have no neighbours.
struct DtrStorages {
  std::vector<std::int64_t> compute;                ///< ns of the distinct calls behind all tensors of the storage
  std::vector<std::uint8_t> material;               ///< resident
  std::vector<std::vector<std::uint32_t>> parents;  ///< storages that a tensor on it was computed from, itself excluded
  std::vector<std::vector<std::uint32_t>> children;  ///< the other way round

  std::uint32_t add() {
    compute.push_back(0);
    material.push_back(0);
    parents.emplace_back();
    children.emplace_back();
    return static_cast<std::uint32_t>(compute.size() - 1);
  }

  /// False where they were neighbours that way before.
  bool add_edge(std::uint32_t parent, std::uint32_t child) {
    if (parent == child || std::ranges::find(parents[child], parent) != parents[child].end()) return false;
    parents[child].push_back(parent);
    children[parent].push_back(child);
    return true;
  }

  template <class Visit>
  void for_evicted_neighbours(std::uint32_t s, Visit&& visit) const {
    for (const std::uint32_t n : parents[s]) {
      if (!material[n]) visit(n);
    }
    for (const std::uint32_t n : children[s]) {
      if (!material[n]) visit(n);
    }
  }
  template <class Visit>
  void for_material_neighbours(std::uint32_t s, Visit&& visit) const {
    for (const std::uint32_t n : parents[s]) {
      if (material[n]) visit(n);
    }
    for (const std::uint32_t n : children[s]) {
      if (material[n]) visit(n);
    }
  }
};

/// A set of storages that is emptied in no time.
class Marks {
 public:
  void grow(std::size_t storages) { round_of_.resize(storages, 0); }
  void clear() { ++round_; }
  bool add(std::uint32_t s) {  ///< false where it was in
    if (round_of_[s] == round_) return false;
    round_of_[s] = round_;
    return true;
  }
  bool has(std::uint32_t s) const { return round_of_[s] == round_; }

 private:
  std::vector<std::uint64_t> round_of_;
  std::uint64_t round_ = 1;
};

}  // namespace plimsoll
