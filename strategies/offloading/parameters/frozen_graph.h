#pragma once
// A graph in which some parameters are frozen: without their gradients, updates and optimizer states, and without the
// backward ops and saved values that nothing needs any more.

#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

struct FrozenGraph {
  Graph graph;
  std::vector<OpId> ops;  ///< by op of the whole graph: its place in this one, or no_op
};

/// `trained` is by tensor; only that of parameters counts. Whose a gradient is, is told by the update that reads both,
/// else by its name ('gradient of w'), else by stage and bytes; in one sentence, where that leaves a doubt.
std::variant<FrozenGraph, std::string> freeze(const Graph&, const std::vector<bool>& trained);

}  // namespace plimsoll
