#pragma once
// A CUDA runtime of our own, for testing without a GPU: streams are queues whose heads run in random order, as far as
// streams and events allow it, whenever CUDA is called. What the real one would order only by luck goes wrong here.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace plimsoll::fake {

struct Machine {
  std::uint64_t seed = 1;
  int gpus = 1;
  std::size_t memory = std::size_t{1} << 30;  ///< bytes of each GPU
  std::optional<int> record_that_fails = {};  ///< counted over all cudaEventRecord
};

/// A new machine with nothing on it.
void begin(const Machine&);

/// Work for a stream, as a kernel would be.
void enqueue(cudaStream_t, std::function<void()>);

/// What all GPUs together hold.
std::size_t device_bytes();

}  // namespace plimsoll::fake
