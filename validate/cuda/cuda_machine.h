#pragma once
// This machine's GPUs and the host memory that they reach: opened once, kept from run to run, so that after a warm-up
// nothing is new.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "validate/cuda/cuda_kernel.h"
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

/// cudaHostAlloc: memory of the host that copies reach at full speed.
class PinnedSegments : public SegmentSource {
 public:
  std::byte* take(Bytes) override;
  void give_back(std::byte*, Bytes) override;
};

/// One GPU with its libraries.
struct Gpu {
  explicit Gpu(int number);

  int ordinal;
  DeviceSegments segments;
  OwnedBlas blas;
  OwnedDnn dnn;
  OwnedPool pool;  ///< of stream-ordered allocation
};

class CudaMachine {
 public:
  /// Throws BackendError where there is no GPU.
  CudaMachine();

  std::size_t gpus() const { return count_; }
  Gpu& gpu(std::size_t ordinal);
  /// Blocks of a memory that is no device's, kept from run to run.
  KeptBlocks& host(MemoryId);
  /// Inputs wait here until a step loads them.
  KeptBlocks& staging() { return staging_; }

  /// Everything that is only kept goes back.
  void release();

 private:
  std::size_t count_ = 0;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  PinnedSegments pinned_;  // before what takes from it
  std::map<MemoryId, std::unique_ptr<KeptBlocks>> hosts_;
  KeptBlocks staging_{pinned_};
};

/// Of GPU 0 and what computes on it: "NVIDIA H200, CUDA 13.0 (driver for 13.0), cuBLASLt 13.1.0, cuDNN 9.19.0".
std::string gpu_name();

/// Calls of this thread go to the GPU.
void set_gpu(std::size_t ordinal);

}  // namespace plimsoll
