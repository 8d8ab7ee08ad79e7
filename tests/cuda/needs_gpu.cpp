// The tests of this program need a GPU. Without one it says so, before any test, and ends with 77, which ctest counts
// as skipped.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>

namespace {

struct NeedsGpu {
  NeedsGpu() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return;
    std::cout << "skipped, nothing was tested: no GPU (" << cudaGetErrorString(status) << ")" << std::endl;
    std::_Exit(77);
  }
};
const NeedsGpu needs_gpu;

}  // namespace
