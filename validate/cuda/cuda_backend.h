#pragma once
// The CUDA backend: runs schedules on this machine's GPUs, one host thread ahead of them. This header needs no CUDA.

#include <cstdint>
#include <memory>

#include "validate/backend.h"

namespace plimsoll {

/// Who gives device memory: PyTorch's rules on segments from cudaMalloc, or CUDA's own pool (cudaMallocAsync).
enum class Allocation : std::uint8_t { caching, stream_ordered };

struct CudaOptions {
  Allocation allocation = Allocation::caching;
  bool tf32 = false;  ///< products may round their inputs to 10 bits of mantissa
};

/// Throws BackendError where there is no GPU or no driver.
std::unique_ptr<Backend> cuda_backend(const CudaOptions&);

}  // namespace plimsoll
