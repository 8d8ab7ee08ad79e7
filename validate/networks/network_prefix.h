#pragma once
// A network cut in two: the first stages, whose outputs are stored, and the others, which are trained on them.

#include "validate/networks/network.h"

namespace plimsoll {

/// The stages from `first` on, with the boundary before them as input; `before` has the forwards of the others. Ops of
/// the backward that lead to no gradient of a parameter that is left are gone.
Network without_first_stages(const Network&, std::size_t first);

/// At which stage of the network the graph of a problem begins: the one whose input is the graph's. Of a chain's graph,
/// `stages` is how many it has; 0: it is a graph of ops.
std::size_t first_stage_of(const Network&, const Graph&, std::size_t stages);

}  // namespace plimsoll
