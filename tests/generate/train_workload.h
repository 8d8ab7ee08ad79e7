#pragma once
// A large schedule for measuring engines: forward and backward of many layers on each GPU, activations offloaded to
// the host and prefetched three layers ahead, gradients copied to the next GPU of a ring.

#include <cstdint>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct TrainWorkload {
  std::uint32_t gpus = 8;
  std::uint32_t layers = 50;
  std::uint32_t iterations = 1;
  bool alike = false;  ///< all GPUs take the same times, so that events tie
};

/// Nodes of 8 GPUs with NVLink, a NIC and a host memory each; two GPUs share one PCIe uplink.
Platform train_platform(const TrainWorkload&);

/// 5 steps a layer, GPU and iteration.
Schedule train_schedule(const TrainWorkload&);

}  // namespace plimsoll
