#pragma once
// All downsets of a directed acyclic graph: sets of nodes that hold, with each node, all nodes before it. A pipeline's
// first s stages together are always one of them, so that planners search among them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace plimsoll {

struct Dag {
  std::uint32_t nodes = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  ///< from a node to one that comes after it
};

/// Numbered by size, the empty set 0 and the whole graph last.
struct Downsets {
  struct Step {
    std::uint32_t node = 0, set = 0;  ///< a set without this node, one of its last, is that set
  };

  std::size_t words = 0;             ///< of 64 nodes each
  std::vector<std::uint64_t> bits;   ///< set after set
  std::vector<std::uint32_t> sizes;  ///< how many nodes
  std::vector<std::vector<Step>> smaller;

  std::size_t count() const { return sizes.size(); }
  std::span<const std::uint64_t> set(std::size_t s) const { return {bits.data() + s * words, words}; }
  bool has(std::size_t s, std::uint32_t node) const { return (bits[s * words + node / 64] >> node % 64 & 1U) != 0; }
  bool within(std::size_t small, std::size_t large) const;
};

/// Nothing where there are more than `most`. The graph has no circles.
std::optional<Downsets> downsets_of(const Dag&, std::size_t most);

/// Of each node, the nodes from which a path leads to it, as `words_of(nodes)` words.
std::vector<std::vector<std::uint64_t>> ancestors_of(const Dag&);
inline std::size_t words_of(std::size_t nodes) {
  return (nodes + 63) / 64;
}

/// Nodes in an order that follows the edges: of those that may come next, the first. Empty where there is a circle.
std::vector<std::uint32_t> order_of(const Dag&);

}  // namespace plimsoll
