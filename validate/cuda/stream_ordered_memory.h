#pragma once
// Device memory from CUDA's own stream-ordered pool, for one run.

#include <functional>
#include <map>

#include "validate/cuda/cuda_machine.h"

namespace plimsoll {

/// What the memory must know of the run: streams and finish events of its steps.
struct RunEvents {
  std::function<cudaStream_t(StreamId)> stream;
  std::function<cudaStream_t(StepId)> stream_of;
  std::function<cudaEvent_t(StepId)> finish_of;
};

/// cudaMallocAsync on the stream of the step that takes, cudaFreeAsync behind the steps that used it. The pool decides
/// what is used again, and orders it. What a run took is given back when this dies.
class StreamOrderedMemory : public RunMemory {
 public:
  StreamOrderedMemory(Gpu&, std::optional<Bytes> capacity, RunEvents);
  ~StreamOrderedMemory() override;

  std::optional<Grant> take(Bytes, StreamId) override;
  void give_back(std::byte*, Bytes, std::span<const StepId> by) override;
  std::optional<AllocatorPeaks> peaks() const override;

 private:
  Gpu& gpu_;
  std::optional<Bytes> capacity_;
  RunEvents events_;
  OwnedStream release_;  ///< frees what several streams used
  std::map<std::byte*, Bytes> taken_;
  Bytes live_;
};

}  // namespace plimsoll
