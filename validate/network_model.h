#pragma once
// Networks as models to plan for: every size is that of what the CPU backend really runs on this machine.

#include <string_view>
#include <variant>

#include "sim/core/chain.h"
#include "sim/core/graph.h"

namespace plimsoll {

/// The chain or the graph of a reference such as `mlp:layers=8,view=graph`. Throws where the reference is wrong.
std::variant<Chain, Graph> network_model(std::string_view reference);

}  // namespace plimsoll
