#pragma once
// Graphs of which the first stages run forward patch by patch, and nothing runs backward.

#include <cstdint>
#include <string>
#include <variant>

#include "sim/core/graph.h"

namespace plimsoll {

struct PatchChoice {
  std::int64_t side = 2;           ///< patches in a row and in a column
  std::uint32_t first_behind = 1;  ///< the first stage that runs whole
  std::int64_t pool_window = 3;    ///< side of a pooling's windows, which graphs do not state
};

struct PatchedGraph {
  Graph graph;
  Flops before, after;  ///< operations of the first stages
};

/// The forward ops. Those of the first stages once for each patch, on regions of their tensors: what the patch of p x p
/// of a stage's result needs of its input is (p - 1) s + k squared, s and k the stride and side of an op's windows, and
/// never more than all. In one sentence, where an op has no windows that are known.
std::variant<PatchedGraph, std::string> patched_graph(const Graph&, const PatchChoice&);

}  // namespace plimsoll
