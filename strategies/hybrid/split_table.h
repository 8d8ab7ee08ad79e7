#pragma once
// What the splits of operators cost, as a table that every search over splits reads: the same for all of them.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/layout.h"
#include "sim/core/operators.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Which choice each node takes, and what it comes to.
struct SplitChoices {
  std::vector<std::uint32_t> of_node;
  Seconds seconds;
  Bytes bytes;
};

struct SplitTable {
  /// A way to cut one operator.
  struct Choice {
    std::vector<std::optional<std::uint8_t>> cuts;  ///< by axis of the mesh: dimension of the forward's loop
    Seconds seconds;  ///< of its forward and backward on a rank, what it reduces inside and its parameters' gradients
    Bytes bytes;      ///< that a rank keeps: parameters, gradients, states, and what the backward needs
  };
  struct Node {
    std::uint32_t op = 0;  ///< index among the operators
    std::vector<Choice> choices;
  };
  /// Values that go from one operator to another: laid out anew forward, their gradients backward.
  struct Edge {
    std::uint32_t from = 0, to = 0;  ///< nodes, from < to
    std::vector<Seconds> seconds;    ///< [choice of from][choice of to], row by row
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;  ///< at most one between two nodes

  /// What these choices cost together; in this order of additions: nodes, then edges.
  SplitChoices priced(std::vector<std::uint32_t> of_node) const;
};

}  // namespace plimsoll
