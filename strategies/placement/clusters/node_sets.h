#pragma once
// Disjoint sets of nodes that only grow.

#include <cstdint>
#include <numeric>
#include <vector>

namespace plimsoll {

/// Each set is called by one of its nodes.
class NodeSets {
 public:
  explicit NodeSets(std::uint32_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }

  std::uint32_t find(std::uint32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(std::uint32_t into, std::uint32_t other) { parent_[other] = into; }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace plimsoll
