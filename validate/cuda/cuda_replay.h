#pragma once
// Runs a schedule with real tensors and kernels on GPUs: its streams and waits are CUDA's, one host thread issues the
// steps, events around each give its dates.

#include <variant>

#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_network.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

/// `plan` is that of the schedule and of the network of `cuda`. Devices of the platform are GPUs 0, 1, ... After a
/// failure all device memory has been given back.
std::variant<Replayed, ReplayFailure> replay_on_cuda(const Problem&, const Schedule&, const ReplayPlan& plan,
                                                     CudaNetwork& cuda, CudaMachine&, Allocation, const ReplayOptions&);

}  // namespace plimsoll
