#pragma once
// One op of a network as a GPU runs it: cuBLASLt for products, cuDNN for convolution and max pooling, own kernels for
// the rest. The same bits every time on the same kind of GPU.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "validate/cuda/cuda_objects.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/packing.h"

namespace plimsoll {

/// Where a kernel is issued: a stream, and the libraries of its device.
struct Queue {
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;
};

struct CudaKernel {
  std::function<void(const KernelArguments&, const Queue&)> run;
  Bytes scratch;  ///< what it needs beside inputs and outputs
};

/// What makers of kernels ask about algorithms.
struct Libraries {
  cublasLtHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;
  bool tf32 = false;  ///< products may round their inputs to 10 bits of mantissa
};

/// The kernel of an op, or nothing where the backend has none of its kind.
std::optional<CudaKernel> make_cuda_kernel(const Graph&, const Op&, const Libraries&);

/// Algorithms are chosen among those whose workspace is not larger than this, where there is one: what cuBLASLt wants
/// on Hopper.
inline constexpr Bytes workspace_limit{32 << 20};

/// A library's workspace begins at a multiple of this many bytes; scratch only at one of `alignment` (packing.h).
inline constexpr std::int64_t library_alignment = 256;

/// Scratch in which the workspace fits wherever it begins.
constexpr Bytes scratch_for(Bytes workspace) {
  return workspace == Bytes{0} ? workspace : workspace + Bytes{library_alignment - alignment};
}

/// The first place in the scratch where a library's workspace may begin.
inline void* workspace_in(void* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  return static_cast<std::byte*>(scratch) + (library_alignment - address % library_alignment) % library_alignment;
}

}  // namespace plimsoll
