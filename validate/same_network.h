#pragma once
// Whether a schedule's graph is that of a network as it is on this machine.

#include <string>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "validate/networks/network.h"

namespace plimsoll {

/// How the graph of a chain has its backwards.
Backward backward_of(const ChainGraph&);

/// What differs, in one sentence, or nothing. The problem's graph is that of the network, or of its chain.
std::string difference_of(const Problem&, const Schedule&, const Network&);

}  // namespace plimsoll
