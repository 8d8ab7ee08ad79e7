#pragma once
// Builds a Schedule step by step and defends its invariants: waits name earlier steps, a buffer is allocated once and
// freed at most once, by a step issued after its allocation.

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// A step before it is flattened into the schedule's lists.
struct NewStep {
  StepKind kind = StepKind::forward;
  StreamId stream;
  OpId op = no_op;
  std::uint32_t implementation = 0;
  std::uint32_t micro_batch = 0, replica = 0;
  Work work;
  bool memory_bound = false;
  Bytes workspace;
  std::vector<BufferId> reads, writes, allocates;
  std::vector<StepId> waits;  ///< duplicates and the predecessor on the same stream are dropped
  CollectiveId collective = no_collective;
  bool measured = false;

  /// As new; the lists keep their room.
  void clear();
};

class ScheduleBuilder {
 public:
  /// The device's stream of this way; made at first use. `index` tells several of one way apart.
  StreamId stream(DeviceId, Way, std::uint32_t index = 0);

  /// A new buffer; `range_length` 0 is taken as the whole of the tensor (`bytes`).
  BufferId buffer(Buffer);

  /// Marks a buffer as live from the start.
  void resident(BufferId);

  /// The route between two different memories.
  RouteId route(MemoryId from, MemoryId to);

  CollectiveId collective(Collective);

  /// The buffer holds an approximation from now on.
  void mark_lossy(BufferId id) { schedule_.buffers[id.index].lossy = true; }

  /// Makes room for so many steps.
  void expect(std::size_t steps);

  /// Issues a step.
  StepId add(const NewStep&);

  /// Lets `buffer` die when `step` finishes; `step` may have been issued before now.
  void free_after(StepId step, BufferId buffer);

  /// Lets the step wait for an earlier one too.
  void wait(StepId step, StepId earlier);

  const Buffer& operator[](BufferId id) const { return schedule_.buffers[id.index]; }
  const Stream& operator[](StreamId id) const { return schedule_.streams[id.index]; }
  StreamId stream_of(StepId id) const { return schedule_.steps[id.index].stream; }
  std::size_t steps() const { return schedule_.steps.size(); }

  /// The schedule; the caller fills in what it was made for. The builder is empty afterwards.
  Schedule finish();

 private:
  static constexpr std::uint32_t nothing = UINT32_MAX;

  /// A row of what was added to steps after they were issued, from the first to the last.
  struct Row {
    std::uint32_t first = nothing, last = nothing;
  };
  struct Later {
    std::uint32_t index, next;
  };
  struct LaterOfStep {
    Row waits, frees;
  };

  void add_later(Row&, std::uint32_t index);

  enum class Life : std::uint8_t { unborn, live, dead };

  Schedule schedule_;
  std::vector<StepId> waits_;          ///< those that steps were issued with, which their slices name until `finish`
  std::vector<LaterOfStep> later_of_;  ///< by step
  std::vector<Later> later_;
  std::vector<Life> life_;
  std::vector<std::uint32_t> born_;  ///< per buffer: the step that allocates it
  using StreamKey = std::tuple<std::uint32_t, Way, std::uint32_t>;
  std::map<StreamKey, StreamId> streams_;
  std::optional<std::pair<StreamKey, StreamId>> last_stream_;  ///< asked for
  std::map<Endpoints, RouteId> routes_;
};

}  // namespace plimsoll
