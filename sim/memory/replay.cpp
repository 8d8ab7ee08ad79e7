#include "sim/memory/replay.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/workspace_memories.h"
#include "sim/memory/planned_memory.h"
#include "sim/memory/replay_order.h"

namespace plimsoll {
namespace {

/// One memory during the replay.
class ReplayedMemory {
 public:
  ReplayedMemory(std::optional<CachingAllocator> allocator, StreamId home)
      : allocator_(std::move(allocator)), home_(home) {}

  StreamId home() const { return home_; }
  bool has_allocator() const { return allocator_.has_value(); }
  StreamId stream_of(BlockId block) const { return (*allocator_)[block].stream; }
  const ReservedPeak& peak() const { return peak_; }

  void record_events() {
    is_recording_ = true;
    if (allocator_) allocator_->record_into(log_);
  }
  void at(Seconds date, std::optional<StepId> step) {
    date_ = date;
    step_ = step;
  }

  /// The block, if there is an allocator to take one from.
  std::optional<BlockId> allocate(Bytes bytes, StreamId stream) {
    live_ += bytes;
    peak_.live = std::max(peak_.live, live_);
    if (!allocator_) {
      peak_.reserved = peak_.allocated = peak_.active = peak_.requested = peak_.live;
      peak_.fullest = {peak_.live, peak_.live, peak_.live, peak_.live, {}, {}};
      return std::nullopt;
    }
    const BlockId block = take(bytes, stream);
    peak_.retries = allocator_->retries();
    const std::pair now{allocator_->reserved(), allocator_->allocated()};
    peak_.allocated = std::max(peak_.allocated, now.second);
    peak_.active = std::max(peak_.active, allocator_->active());
    peak_.requested = std::max(peak_.requested, allocator_->requested());
    if (now > std::pair(peak_.fullest.reserved, peak_.fullest.allocated)) {
      peak_.reserved = now.first;
      peak_.fullest = allocator_->bytes();
    }
    keep_events();
    return block;
  }

  /// What other streams than the block's own still use is given back.
  void give_up(BlockId block, StreamId user) {
    allocator_->record_use(block, user);
    allocator_->free(block);
    keep_events();
  }

  void reach(StreamId stream) {
    if (allocator_) allocator_->reach(stream);
  }

  void free(BlockId block) {
    allocator_->free(block);
    keep_events();
  }
  void is_dead(Bytes bytes) { live_ -= bytes; }

  AllocatorRun run() {
    AllocatorRun run{peak_, std::move(events_), {}};
    if (allocator_) run.blocks = allocator_->blocks();
    return run;
  }

 private:
  BlockId take(Bytes bytes, StreamId stream) {
    if (const std::optional<BlockId> block = allocator_->allocate(bytes, stream)) return *block;
    const AllocatorBytes held = allocator_->bytes();
    peak_.out_of_memory = OutOfMemory{.step = step_,
                                      .requested = bytes,
                                      .reserved = held.reserved,
                                      .allocated = held.allocated,
                                      .active = held.active,
                                      .largest_free = held.largest_free,
                                      .limit = *allocator_->limit()};
    allocator_->lift_capacity();
    return *allocator_->allocate(bytes, stream);
  }

  void keep_events() {
    if (!is_recording_) return;
    for (const AllocatorEvent& event : log_) events_.push_back({event, date_, step_});
    log_.clear();
  }

  std::optional<CachingAllocator> allocator_;  ///< unset: live bytes are all there is
  StreamId home_;                              ///< of what no stream of the device allocates
  Bytes live_;
  ReservedPeak peak_;
  bool is_recording_ = false;
  Seconds date_;
  std::optional<StepId> step_;
  std::vector<AllocatorEvent> log_;
  std::vector<DatedEvent> events_;
};

ReplayedMemory memory_of(const Schedule& schedule, const Memory& memory, const AllocatorChoice& choice) {
  if (!memory.device || choice.kind == AllocatorKind::exact) return {std::nullopt, {}};
  const auto home = std::ranges::find_if(
      schedule.streams, [&](const Stream& s) { return s.device == *memory.device && s.way == way::compute; });
  const auto index = static_cast<std::size_t>(home - schedule.streams.begin());
  return {CachingAllocator(choice.caching, limit_of(schedule, memory)), id_at<StreamId>(index)};
}

class Replay {
 public:
  Replay(const Schedule& schedule, const Platform& platform, const AllocatorChoice& choice, bool records)
      : schedule_(schedule),
        platform_(platform),
        workspace_memories_(workspace_memories(schedule, platform)),
        buffers_(schedule.buffers.size()),
        workspaces_(schedule.steps.size()),
        has_cublas_(schedule.streams.size(), !choice.cublas_workspace) {
    for (const Memory& memory : platform.memories) memories_.push_back(memory_of(schedule, memory, choice));
    if (records) {
      for (ReplayedMemory& memory : memories_) memory.record_events();
    }
    for (const BufferId b : schedule.resident) allocate(b, {});
  }

  void start(StepId id, Seconds date) {
    const Step& step = schedule_[id];
    for (ReplayedMemory& memory : memories_) memory.at(date, id);
    for (const BufferId b : schedule_.buffers_in(step.allocates)) allocate(b, id);
    start_cublas(step);
    if (step.workspace > Bytes{0}) {  // below 0: blocks freed early, which no step of the schedule frees
      workspaces_[id.index] = workspace_memory(step).allocate(step.workspace, step.stream);
    }
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      ReplayedMemory& memory = memories_[schedule_[b].memory.index];
      const std::optional<BlockId> block = buffers_[b.index];
      if (!block || memory.stream_of(*block) == step.stream) continue;
      memory.give_up(*block, step.stream);
      buffers_[b.index].reset();
    }
  }

  void finish(StepId id, Seconds date) {
    const Step& step = schedule_[id];
    for (ReplayedMemory& memory : memories_) memory.at(date, id);
    if (step.workspace > Bytes{0}) {
      ReplayedMemory& memory = workspace_memory(step);
      memory.is_dead(step.workspace);
      if (workspaces_[id.index]) memory.free(*workspaces_[id.index]);
    }
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      ReplayedMemory& memory = memories_[schedule_[b].memory.index];
      memory.is_dead(schedule_[b].bytes);
      if (buffers_[b.index]) memory.free(*buffers_[b.index]);
      buffers_[b.index].reset();
      memory.reach(step.stream);
    }
  }

  std::vector<AllocatorRun> runs() {
    std::vector<AllocatorRun> runs;
    for (ReplayedMemory& memory : memories_) runs.push_back(memory.run());
    return runs;
  }

 private:
  ReplayedMemory& workspace_memory(const Step& step) { return memories_[workspace_memories_[step.stream.index].index]; }

  /// One handle a device: the workspace is taken at the stream's first op and stays.
  void start_cublas(const Step& step) {
    if (has_cublas_[step.stream.index] || schedule_[step.stream].way != way::compute) return;
    has_cublas_[step.stream.index] = true;
    const Device& device = platform_[schedule_[step.stream].device];
    ReplayedMemory& memory = memories_[device.memory.index];
    if (memory.has_allocator()) memory.allocate(cublas_workspace_bytes(device.model), step.stream);
  }

  void allocate(BufferId b, std::optional<StepId> step) {
    const Buffer& buffer = schedule_[b];
    if (buffer.bytes == Bytes{0}) return;
    ReplayedMemory& memory = memories_[buffer.memory.index];
    StreamId stream = memory.home();
    if (step) {
      const StreamId own = schedule_[*step].stream;
      if (platform_[schedule_[own].device].memory == buffer.memory) stream = own;
    }
    buffers_[b.index] = memory.allocate(buffer.bytes, stream);
  }

  const Schedule& schedule_;
  const Platform& platform_;
  std::vector<MemoryId> workspace_memories_;  ///< by stream
  std::vector<ReplayedMemory> memories_;
  std::vector<std::optional<BlockId>> buffers_;     ///< the block of each live buffer
  std::vector<std::optional<BlockId>> workspaces_;  ///< the block of each running step
  std::vector<bool> has_cublas_;                    ///< by stream, or needs none
};

std::vector<AllocatorRun> replayed(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                   const AllocatorChoice& choice, bool records) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  Replay replay(schedule, platform, choice, records);
  for (const ReplayEvent& event : replay_order(schedule, timeline)) {
    if (event.starts) {
      replay.start(event.step, event.date);
    } else {
      replay.finish(event.step, event.date);
    }
  }
  return replay.runs();
}

}  // namespace

std::vector<ReservedPeak> peak_reserved(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                        const AllocatorChoice& choice) {
  std::vector<ReservedPeak> peaks;
  if (choice.kind == AllocatorKind::planned) return planned_peaks(schedule, timeline, platform);
  for (const AllocatorRun& run : replayed(schedule, timeline, platform, choice, false)) peaks.push_back(run.peak);
  return peaks;
}

std::vector<AllocatorRun> allocator_runs(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                         const AllocatorChoice& choice) {
  return replayed(schedule, timeline, platform, choice, true);
}

}  // namespace plimsoll
