#pragma once
// A network with a GPU's kernels, and with the workspaces that they take to the byte.

#include <map>
#include <string>
#include <vector>

#include "validate/cuda/cuda_kernel.h"
#include "validate/networks/network.h"

namespace plimsoll {

struct CudaNetwork {
  Network network;
  std::vector<CudaKernel> kernels;  ///< by op; an op whose kind the backend lacks has none to run
  /// By op: the same on the host, for updates that a schedule puts there.
  std::vector<std::function<void(const KernelArguments&)>> host_kernels;

  // Made when a run first needs them: a validation runs a network hundreds of times.
  std::map<std::string, std::vector<std::byte>> initial_values;  ///< of parameters, by name
  std::vector<std::vector<std::byte>> inputs;                    ///< by micro-batch
};

/// Makes the kernels and states their workspaces in the network's ops.
CudaNetwork with_cuda_kernels(Network, const Libraries&);

}  // namespace plimsoll
