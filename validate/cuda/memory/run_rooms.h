#pragma once
// Where a run's buffers and workspaces lie: every memory of the platform gives room in the order of issue, and says
// which steps used it before.

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_objects.h"
#include "validate/device/run_memory.h"
#include "validate/replay_plan.h"

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
  /// `begins_empty`: the pool reserves anew, so that its peaks are this run's.
  StreamOrderedMemory(Gpu&, std::optional<Bytes> capacity, RunEvents, bool begins_empty);
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

/// The GPUs of a run: the platform's devices in order, or of a rank one, which is the first device.
struct GpuRange {
  std::size_t first = 0, count = 0;
  std::uint32_t rank = 0;

  bool has(DeviceId device) const { return device.index < count; }
  std::size_t of(DeviceId device) const { return first + device.index; }
};

/// What was asked for and is not there, with its step.
struct NoRoom {
  std::string what;
};

class RunRooms {
 public:
  /// `events` are those of the run's streams and steps, which outlive this.
  RunRooms(const Problem&, const Schedule&, const ReplayPlan&, CudaMachine&, const GpuRange&, Allocation,
           const RunEvents& events, bool begins_empty);

  /// What must come before a room is used: the end of steps, and the start of the one for which it was made.
  struct Opened {
    std::vector<StepId> after;
    std::optional<StepId> made_for = {};
  };

  /// Room for a buffer, for a step or before the first one. In a block of planned addresses the schedule's own waits
  /// are enough.
  Opened open(BufferId, std::optional<StepId>);
  /// The step has done with a buffer.
  void close(BufferId, StepId);
  /// For the step's workspace, which is not empty.
  Grant open_workspace(StepId);
  /// Of a step that may have none.
  void close_workspace(StepId);

  std::byte* address_of(BufferId b) const { return room_of(b).address + schedule_[b].range_offset.count; }
  std::byte* address_of(RegionId region) const { return rooms_[region.index].address; }
  /// Of what a call of the step reads or makes; null where there is nothing.
  std::byte* address_of(const Address&, StepId) const;

  std::vector<std::optional<AllocatorPeaks>> peaks() const;  ///< by memory

 private:
  /// What a region's bytes are made of while it is live.
  struct Room {
    std::byte* address = nullptr;
    std::uint32_t buffers = 0;
    std::vector<StepId> users;       ///< who freed buffers in it: what comes next waits for them
    std::optional<StepId> made_for;  ///< whose stream had it first
  };

  const Room& room_of(BufferId b) const { return rooms_[plan_.region_of[b.index].index]; }
  Room& room_of(BufferId b) { return rooms_[plan_.region_of[b.index].index]; }
  MemoryId own_memory(StepId s) const { return platform_[schedule_[schedule_[s].stream].device].memory; }
  StreamId home_of(DeviceId) const;
  StreamId taker(MemoryId, std::optional<StepId>) const;
  Grant taken(MemoryId, Bytes, std::optional<StepId>, const std::string& what);

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  GpuRange gpus_;
  std::vector<std::unique_ptr<RunMemory>> owned_memories_;  // by memory; the machine has those of hosts
  std::vector<RunMemory*> memories_;                        // by memory
  std::vector<StreamId> homes_;                             // by memory
  bool in_stream_order_;                                    // whether devices' memory comes when a stream gets there
  std::vector<std::byte*> blocks_;                          // by memory; null: its rooms come one by one
  std::vector<Room> rooms_;                                 // by region
  std::vector<std::byte*> workspaces_;                      // by step, while it runs
};

/// The GPU whose memory this is; nothing for hosts and disks.
std::optional<std::size_t> gpu_of(const Platform&, MemoryId, const GpuRange&);

/// What its kernels take, which of a rank's is perhaps more than the schedule says.
Bytes workspace_of(const Schedule&, const ReplayPlan&, StepId);

/// A step as messages name it: `step 7 ('block2')`.
std::string text_of(const Graph&, const Schedule&, StepId);

}  // namespace plimsoll
