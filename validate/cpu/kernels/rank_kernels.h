#pragma once
// The kernels that each rank of a mesh runs: those of the network's ops on the rank's shares, and exchanges.

#include <memory>
#include <variant>
#include <vector>

#include "sim/model/problem.h"
#include "validate/cpu/cpu_network.h"
#include "validate/networks/rank_layouts.h"
#include "validate/replay_plan.h"

namespace plimsoll {

struct RankNetworks {
  std::vector<CpuNetwork> ranks;    ///< their graph is the problem's, with what kernels ask of its ops
  std::vector<RankLayout> layouts;  ///< by tensor of it
};

/// Of a problem with a mesh, whose graph is one rank's of the network's. Or why ranks cannot run it.
std::variant<RankNetworks, ReplayFailure> rank_networks(const Network& whole, const Problem&);

}  // namespace plimsoll
