#pragma once
// This machine's GPUs and the host memory that they reach: opened once, kept from run to run, so that after a warm-up
// nothing is new.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/cuda_objects.h"
#include "validate/device/run_memory.h"

namespace plimsoll {

/// cudaMalloc. What is given back is kept for the next request of its size, or until others need the room.
class DeviceSegments : public SegmentSource {
 public:
  explicit DeviceSegments(int ordinal) : ordinal_(ordinal) {}
  ~DeviceSegments() override { release(); }

  std::byte* take(Bytes) override;
  void give_back(std::byte*, Bytes) override;
  /// Everything that is only kept goes back to the device.
  void release();
  Bytes kept() const { return kept_; }

 private:
  int ordinal_;
  std::multimap<Bytes, std::byte*> free_;
  Bytes kept_;
};

/// cudaHostAlloc: memory of the host that copies reach at full speed. `wait` returns when no GPU uses any of it.
class PinnedSegments : public SegmentSource {
 public:
  explicit PinnedSegments(std::function<void()> wait) : wait_(std::move(wait)) {}

  std::byte* take(Bytes) override;
  void give_back(std::byte*, Bytes) override;

 private:
  std::function<void()> wait_;
};

/// One GPU with its libraries.
struct Gpu {
  explicit Gpu(int number);

  int ordinal;
  DeviceSegments segments;
  OwnedBlas blas;
  OwnedDnn dnn;

  /// Of stream-ordered allocation: made when first asked for, as not every GPU has one.
  cudaMemPool_t pool();
  /// What a pool only keeps goes back to the device.
  void trim_pool();

 private:
  OwnedPool pool_;
};

class CudaMachine {
 public:
  /// Throws BackendError where there is no GPU.
  CudaMachine();

  std::size_t gpus() const { return count_; }
  Gpu& gpu(std::size_t ordinal);
  /// A rank's blocks of a memory that is no device's, kept from run to run; 0 where there are no ranks.
  KeptBlocks& host(std::uint32_t rank, MemoryId);
  /// Its inputs wait here until a step loads them.
  KeptBlocks& staging(std::uint32_t rank);
  PinnedSegments& pinned() { return pinned_; }

  /// Everything that is only kept goes back.
  void release();

 private:
  /// Until the GPUs that are open have done everything. What went wrong on them has been told, or will be.
  void wait() const;

  std::size_t count_ = 0;
  std::vector<std::unique_ptr<Gpu>> gpus_;     // before what waits for them
  PinnedSegments pinned_{[this] { wait(); }};  // before what takes from it
  std::map<std::pair<std::uint32_t, MemoryId>, std::unique_ptr<KeptBlocks>> hosts_;
  std::map<std::uint32_t, std::unique_ptr<KeptBlocks>> staging_;
};

/// Of GPU 0, as traces and platforms name it (sim/core/device_name.h): "NVIDIA H200".
std::string gpu_name();
/// "CUDA 13.0 (driver for 13.0), cuBLASLt 13.1.0, cuDNN 9.19.0".
std::string gpu_libraries();

/// Calls of this thread go to the GPU.
void set_gpu(std::size_t ordinal);

}  // namespace plimsoll
