#pragma once
// Stands in for validate/cuda/grid.cuh where kernels are compiled as plain C++: a block's threads are threads of the
// host, blocks run one after the other, so what they share is one place for all.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/cuda/cuda_error.h"

#undef __device__
#undef __global__
#undef __shared__
#define __device__
#define __global__
#define __shared__ static
#define UNROLLED

namespace plimsoll {

constexpr unsigned block_threads = 256;

inline thread_local dim3 threadIdx, blockIdx;
inline thread_local std::barrier<>* block_barrier = nullptr;

inline void __syncthreads() {
  block_barrier->arrive_and_wait();
}

template <class Number>
Number read(const Number* from) {
  ++fake::numbers_read();
  return *from;
}

template <class Work>
void for_each(std::int64_t n, cudaStream_t stream, Work work) {
  if (n > 0) ++fake::launches();
  fake::launch(stream, [=] {
    for (std::int64_t i = 0; i < n; ++i) work(i);
  });
}

template <class Kernel>
void run_block(dim3 place, dim3 block, const Kernel& kernel) {
  std::barrier<> barrier(static_cast<std::ptrdiff_t>(block.x * block.y));
  std::vector<std::jthread> threads;
  for (unsigned y = 0; y < block.y; ++y) {
    for (unsigned x = 0; x < block.x; ++x) {
      threads.emplace_back([&kernel, &barrier, place, x, y] {
        blockIdx = place;
        threadIdx = dim3(x, y, 0);
        block_barrier = &barrier;
        kernel();
        barrier.arrive_and_drop();  // others may still meet there
      });
    }
  }
}

template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, Arguments... arguments) {
  ++fake::launches();
  fake::launched_blocks().push_back(grid.x * grid.y);
  fake::launch(stream, [=] {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) run_block(dim3(x, y, 0), block, [=] { kernel(arguments...); });
    }
  });
}

}  // namespace plimsoll
