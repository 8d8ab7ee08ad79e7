#pragma once
// Graphs in which some forward ops run a second time for the backward.

#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// The graph in which backward ops read what these forward ops (`runs_again`, by op) make from a second run of them,
/// each as late as it can be: right before the first backward op that reads what it makes, or needs it to.
///  - Those that no backward op needs do not run again. Of what such an op only saves, its first run makes only what
///    others than the backward read.
///  - A second run is a backward op of the same stage, with the loop of the first and of the same operator
///    (core/operators.h), so that it is cut alike on a mesh.
/// Or in one sentence why there is none: an op that cannot run again, or overwrites what it reads.
std::variant<Graph, std::string> with_recomputed_ops(const Graph&, const std::vector<bool>& runs_again);

}  // namespace plimsoll
