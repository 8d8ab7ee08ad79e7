#pragma once
// Networks as models to plan for: every size is that of what a backend's kernels really take.

#include <string_view>
#include <variant>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "validate/networks/networks.h"

namespace plimsoll {

/// The chain or the graph of a network whose ops state their workspaces.
std::variant<Chain, Graph> model_of(const Network&, View);

/// The same of a reference such as `mlp:layers=8,view=graph`, with the CPU's kernels. Throws where it is wrong.
std::variant<Chain, Graph> network_model(std::string_view reference);

}  // namespace plimsoll
