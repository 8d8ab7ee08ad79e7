#pragma once
// A network with the CPU's kernels, and with the workspaces that they take to the byte.

#include <functional>
#include <vector>

#include "validate/cpu/kernels/kernel.h"
#include "validate/networks/network.h"

namespace plimsoll {

struct CpuNetwork {
  Network network;
  std::vector<Kernel> kernels;          ///< by op; an op whose kind the CPU lacks has none to run
  std::vector<CpuNetwork> slices = {};  ///< the same of those on slices of sequences
  std::function<void()> give_up = {};   ///< called where a run fails, so that others who wait for it end; unset: nobody
};

/// Makes the kernels and states their workspaces in the network's ops. An op that adds to parameter gradients makes its
/// contribution in the workspace first.
CpuNetwork with_kernels(Network);

}  // namespace plimsoll
