#pragma once
// A schedule in which one device stands for all ranks of a mesh, run by all of them, each on a GPU of its own.

#include <memory>
#include <variant>

#include "validate/backend.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"

namespace plimsoll {

/// The network as the ranks of the problem's mesh run it, rank r on GPU r, or why they cannot. A run hands back what
/// network_on_ranks() (validate/cpu/ranks) does. Throws BackendError where there is no NCCL.
std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> network_on_gpus(Network, const Problem&, CudaMachine&,
                                                                              const CudaOptions&);

}  // namespace plimsoll
