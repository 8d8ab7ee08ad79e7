#pragma once
// Networks as models to plan for: every size is that of what a backend's kernels really take.

#include <variant>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "validate/networks/networks.h"

namespace plimsoll {

/// The chain or the graph of a network whose ops state their workspaces.
std::variant<Chain, Graph> model_of(const Network&, View);

}  // namespace plimsoll
