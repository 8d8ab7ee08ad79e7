#include "sim/core/kernels/gpu_kernel.h"

namespace plimsoll {

bool operator==(const StageKernels& a, const StageKernels& b) {
  return a.list_ == b.list_ || (a.list_ && b.list_ && *a.list_ == *b.list_);
}

StageKernels times(double share, const StageKernels& kernels) {
  std::vector<StageKernel> made(kernels.begin(), kernels.end());
  for (StageKernel& each : made) each.count *= share;
  return StageKernels(std::move(made));
}

}  // namespace plimsoll
