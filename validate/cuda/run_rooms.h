#pragma once
// Where a run's buffers and workspaces lie: every memory of the platform gives room in the order of issue, and says
// which steps used it before.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/stream_ordered_memory.h"
#include "validate/replay_plan.h"

namespace plimsoll {

/// What was asked for and is not there, with its step.
struct NoRoom {
  std::string what;
};

/// The GPU whose memory this is; nothing for hosts and disks.
std::optional<std::size_t> gpu_of(const Platform&, MemoryId);

/// A step as messages name it: `step 7 ('block2')`.
std::string text_of(const Graph&, const Schedule&, StepId);

class RunRooms {
 public:
  /// `events` are those of the run's streams and steps, which outlive this.
  RunRooms(const Problem&, const Schedule&, const ReplayPlan&, CudaMachine&, Allocation, const RunEvents& events);

  /// Room for a buffer, for a step or before the first one: the steps that used it before.
  std::vector<StepId> open(BufferId, std::optional<StepId>);
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
    std::vector<StepId> users;  ///< who freed buffers in it: what comes next waits for them
  };

  const Room& room_of(BufferId b) const { return rooms_[plan_.region_of[b.index].index]; }
  Room& room_of(BufferId b) { return rooms_[plan_.region_of[b.index].index]; }
  MemoryId own_memory(StepId s) const { return platform_[schedule_[schedule_[s].stream].device].memory; }
  StreamId home_of(DeviceId) const;
  Grant taken(MemoryId, Bytes, std::optional<StepId>, const std::string& what);

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  std::vector<std::unique_ptr<RunMemory>> owned_memories_;  // by memory; the machine has those of hosts
  std::vector<RunMemory*> memories_;                        // by memory
  std::vector<StreamId> homes_;                             // by memory
  std::vector<Room> rooms_;                                 // by region
  std::vector<std::byte*> workspaces_;                      // by step, while it runs
};

}  // namespace plimsoll
