#pragma once
// The network that a schedule trains, as transforms of the problem have changed it.

#include <string>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "validate/networks/network.h"

namespace plimsoll {

/// `reference`: of the network before transforms; a chain's updates are the schedule's.
Network replayed_network(const Problem&, const Schedule&, const std::string& reference);

}  // namespace plimsoll
