#pragma once
// What the splits of operators cost, as a table that every search over splits reads: the same for all of them.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/layout.h"
#include "sim/core/units.h"

namespace plimsoll {

struct SplitTable {
  /// A way to cut one operator.
  struct Choice {
    std::vector<std::optional<std::uint8_t>> cuts;  ///< by axis of the table: dimension of the forward's loop
    Seconds seconds;  ///< of its forward and backward on a rank, with what they exchange among themselves, and the sums
                      ///< of its parameters' gradients
  };
  /// Values that go between two operators and their gradients, laid out anew.
  struct Edge {
    std::uint32_t from = 0, to = 0;  ///< nodes, from < to
    std::vector<Seconds> seconds;    ///< [choice of from][choice of to], row by row
  };
  std::vector<std::vector<Choice>> nodes;  ///< by operator
  std::vector<Edge> edges;                 ///< at most one between two nodes
  std::vector<std::vector<std::uint32_t>> edges_of;

  Seconds of_edge(const Edge& edge, std::uint32_t from, std::uint32_t to) const {
    return edge.seconds[from * nodes[edge.to].size() + to];
  }
  /// What these choices cost together.
  Seconds priced(const std::vector<std::uint32_t>& choices) const;
};

/// By operator: which of its choices.
using SplitChoices = std::vector<std::uint32_t>;

/// Operators in their order, each with its first choice or, where it is cheaper beside those before it, another; then
/// again beside all others, so often; the best of this from several starts: no choice before, or all operators that have
/// a dimension of one name cut along it. Linear in the size of the table.
SplitChoices swept(const SplitTable&, const std::vector<SplitChoices>& starts, std::uint32_t sweeps);

/// The cheapest choices, by eliminating one operator after the other, each with the fewest neighbours left, from tables
/// of what it costs at best beside each of their choices (OptCNN's node and edge elimination, and beyond it). Nothing
/// where such a table would have more than `largest` entries.
std::optional<SplitChoices> eliminated(const SplitTable&, std::size_t largest = std::size_t{1} << 22U);

}  // namespace plimsoll
