#pragma once
// A CUDA runtime of our own, for testing without a GPU: streams are queues whose heads run in random order, as far as
// streams and events allow it, whenever CUDA is called. What the real one would order only by luck goes wrong here.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::fake {

struct Machine {
  std::uint64_t seed = 1;
  int gpus = 1;
  std::size_t memory = std::size_t{1} << 30;  ///< bytes of each GPU
  std::uint64_t haste = 4;                    ///< fewer pieces of work run while the host does something; 1: none
  std::optional<int> record_that_fails = {};  ///< counted over all cudaEventRecord
  bool has_pools = true;
  bool has_nccl = true;
  std::size_t convolution_workspace = 192;  ///< bytes that cuDNN's best algorithm takes
};

/// A new machine with nothing on it.
void begin(const Machine&);
const Machine& machine();

inline constexpr std::size_t large_copy = 4096;  ///< bytes

/// Work for a stream, as a kernel would be.
void enqueue(cudaStream_t, std::function<void()>);
/// A kernel of the GPU that is set.
void launch(cudaStream_t, std::function<void()> kernel);

/// Streams that meet: which come is counted, and who has come goes on when all have.
struct Arrivals {
  explicit Arrivals(std::size_t count) : missing(count) {}
  std::size_t missing;
};
/// `come` when the stream is there, `go_on` some time behind it, when all are.
void enqueue_meeting(cudaStream_t, std::shared_ptr<Arrivals>, std::function<void()> come, std::function<void()> go_on);

/// Whether these bytes are within one allocation of the GPU's memory; no bytes are everywhere.
bool lies_on(int gpu, const void* address, std::size_t bytes);
int gpu_of(cudaStream_t);
/// By a stream, of memory that may be a pool's: see early_uses().
void use(const void* address, cudaStream_t);

/// Events recorded in streams of another GPU, and kernels launched to one while another GPU was set.
int strays();

/// What all GPUs together hold.
std::size_t device_bytes();

/// What went against CUDA's contracts without an error of its own: host memory freed while streams may still use it.
int early_frees();

/// Copies and fills of a pool's memory by streams that nothing orders behind its allocation.
int early_uses();

/// How often a pool gave its free memory back.
int trims();

/// Copies between GPUs whose pool was not opened to the other GPU: CUDA stages them through the host.
int detours();

/// Products and large copies in the order in which they were issued: 'P', 'C'; a product of zeros is '0'.
std::string& issued();

/// In which maths convolutions were issued, in order: see fake_cudnn.cpp.
std::string& maths();

/// Kernels of our own so far.
int& launches();

/// Numbers that kernels of blocks have read row by row.
std::atomic<std::int64_t>& numbers_read();

/// Blocks of each kernel of blocks, in the order of their launch.
std::vector<unsigned>& launched_blocks();

}  // namespace plimsoll::fake
