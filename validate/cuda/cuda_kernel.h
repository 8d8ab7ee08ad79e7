#pragma once
// One op of a network as a GPU runs it: cuBLASLt for products, cuDNN for convolution and max pooling, own kernels for
// the rest. The same bits every time on the same kind of GPU.

#include <functional>
#include <optional>

#include "validate/cuda/cuda_objects.h"
#include "validate/networks/kernel_arguments.h"

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

/// By family; each returns nothing for a kind that is not its own.
std::optional<CudaKernel> cuda_product_kernel(const Graph&, const Op&, const Libraries&);
std::optional<CudaKernel> cuda_convolution_kernel(const Graph&, const Op&, const Libraries&);
std::optional<CudaKernel> own_cuda_kernel(const Graph&, const Op&);

/// Scratch of one call of a library is not larger than this.
inline constexpr Bytes scratch_limit{8 << 20};

}  // namespace plimsoll
