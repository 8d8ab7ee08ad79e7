#pragma once
// How kernels are launched: one thread an element, or blocks of threads that work together.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "validate/cuda/cuda_error.h"

#define UNROLLED _Pragma("unroll")  // what a loop indexes can then be registers

namespace plimsoll {

constexpr unsigned block_threads = 256;

/// Of numbers that blocks read row by row: tests count them.
template <class Number>
__device__ Number read(const Number* from) {
  return *from;
}

/// Calls `work(i)` for every i below n.
template <class Work>
__global__ void for_each_kernel(std::int64_t n, Work work) {
  const std::int64_t all = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += all) work(i);
}

template <class Work>
void for_each(std::int64_t n, cudaStream_t stream, Work work) {
  if (n == 0) return;
  constexpr std::int64_t most_blocks = 1 << 20;
  const std::int64_t blocks = std::min(most_blocks, (n + block_threads - 1) / block_threads);
  for_each_kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(n, work);
  CUDA_CHECK(cudaGetLastError());
}

/// A kernel of blocks; the launch is checked, the kernel runs later.
template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, Arguments... arguments) {
  kernel<<<grid, block, 0, stream>>>(arguments...);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace plimsoll
