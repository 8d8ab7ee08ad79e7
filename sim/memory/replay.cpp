#include "sim/memory/replay.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/workspace_memories.h"
#include "sim/memory/caching_allocator.h"

namespace plimsoll {
namespace {

struct Event {
  Seconds date;
  std::uint32_t round = 0;
  bool starts = false;
  StreamId stream;
  StepId step;
};

/// Starts and finishes that change a memory, in the order in which they are replayed.
std::vector<Event> events_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<Event> events;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const bool works = step.workspace > Bytes{0};
    const auto id = id_at<StepId>(s);
    if (works || step.allocates.count > 0) events.push_back({ran.start, ran.start_round, true, step.stream, id});
    if (!works && step.frees.count == 0) continue;
    // A measured timeline knows no rounds; a step of zero duration still allocates before it frees.
    const bool instant = ran.finish == ran.start;
    const std::uint32_t round = instant ? std::max(ran.finish_round, ran.start_round + 1) : ran.finish_round;
    events.push_back({ran.finish, round, false, step.stream, id});
  }
  std::ranges::sort(events, {}, [](const Event& e) { return std::tuple(e.date, e.round, e.starts, e.stream, e.step); });
  return events;
}

/// One memory during the replay.
class ReplayedMemory {
 public:
  ReplayedMemory(std::optional<CachingAllocator> allocator, StreamId home)
      : allocator_(std::move(allocator)), home_(home) {}

  StreamId home() const { return home_; }
  const ReservedPeak& peak() const { return peak_; }

  /// The block, if there is an allocator to take one from.
  std::optional<BlockId> allocate(Bytes bytes, StreamId stream, std::optional<StepId> step) {
    live_ += bytes;
    peak_.live = std::max(peak_.live, live_);
    if (!allocator_) {
      peak_.reserved = peak_.allocated = peak_.live;
      return std::nullopt;
    }
    std::optional<BlockId> block = allocator_->allocate(bytes, stream);
    if (!block) {
      peak_.out_of_memory = OutOfMemory{step, bytes, allocator_->reserved(), allocator_->allocated()};
      allocator_->lift_capacity();
      block = allocator_->allocate(bytes, stream);
    }
    const Bytes reserved = allocator_->reserved(), allocated = allocator_->allocated();
    peak_.allocated = std::max(peak_.allocated, allocated);
    if (std::pair(reserved, allocated) > fullest_) {
      fullest_ = {reserved, allocated};
      peak_.reserved = reserved;
      peak_.fragmentation = reserved - allocated;
    }
    return block;
  }

  void free(Bytes bytes, std::optional<BlockId> block) {
    live_ -= bytes;
    if (!allocator_) return;
    EXPECTS(block.has_value());
    allocator_->free(*block);
  }

 private:
  std::optional<CachingAllocator> allocator_;  ///< unset: live bytes are all there is
  StreamId home_;                              ///< of what no stream of the device allocates
  Bytes live_;
  std::pair<Bytes, Bytes> fullest_;  ///< reserved, then allocated
  ReservedPeak peak_;
};

ReplayedMemory memory_of(const Schedule& schedule, const Memory& memory, AllocatorKind kind) {
  if (!memory.device || kind == AllocatorKind::exact) return {std::nullopt, {}};
  std::optional<Bytes> limit = memory.capacity;
  if (schedule.budget) limit = limit ? std::min(*limit, *schedule.budget) : *schedule.budget;
  const auto home = std::ranges::find_if(
      schedule.streams, [&](const Stream& s) { return s.device == *memory.device && s.way == way::compute; });
  const auto index = static_cast<std::size_t>(home - schedule.streams.begin());
  const Segments segments = kind == AllocatorKind::cuda ? Segments::native : Segments::expandable;
  return {CachingAllocator(segments, limit), id_at<StreamId>(index)};
}

class Replay {
 public:
  Replay(const Schedule& schedule, const Platform& platform, AllocatorKind kind)
      : schedule_(schedule),
        platform_(platform),
        workspace_memories_(workspace_memories(schedule, platform)),
        buffers_(schedule.buffers.size()),
        workspaces_(schedule.steps.size()) {
    for (const Memory& memory : platform.memories) memories_.push_back(memory_of(schedule, memory, kind));
    for (const BufferId b : schedule.resident) allocate(b, {});
  }

  void start(StepId id) {
    const Step& step = schedule_[id];
    for (const BufferId b : schedule_.buffers_in(step.allocates)) allocate(b, id);
    if (step.workspace <= Bytes{0}) return;  // below 0: blocks freed early, which no step of the schedule frees
    workspaces_[id.index] = workspace_memory(step).allocate(step.workspace, step.stream, id);
  }

  void finish(StepId id) {
    const Step& step = schedule_[id];
    if (step.workspace > Bytes{0}) workspace_memory(step).free(step.workspace, workspaces_[id.index]);
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      if (schedule_[b].bytes > Bytes{0})
        memories_[schedule_[b].memory.index].free(schedule_[b].bytes, buffers_[b.index]);
      buffers_[b.index].reset();
    }
  }

  std::vector<ReservedPeak> peaks() const {
    std::vector<ReservedPeak> peaks;
    for (const ReplayedMemory& memory : memories_) peaks.push_back(memory.peak());
    return peaks;
  }

 private:
  ReplayedMemory& workspace_memory(const Step& step) { return memories_[workspace_memories_[step.stream.index].index]; }

  void allocate(BufferId b, std::optional<StepId> step) {
    const Buffer& buffer = schedule_[b];
    if (buffer.bytes == Bytes{0}) return;
    ReplayedMemory& memory = memories_[buffer.memory.index];
    StreamId stream = memory.home();
    if (step) {
      const StreamId own = schedule_[*step].stream;
      if (platform_[schedule_[own].device].memory == buffer.memory) stream = own;
    }
    buffers_[b.index] = memory.allocate(buffer.bytes, stream, step);
  }

  const Schedule& schedule_;
  const Platform& platform_;
  std::vector<MemoryId> workspace_memories_;  ///< by stream
  std::vector<ReplayedMemory> memories_;
  std::vector<std::optional<BlockId>> buffers_;     ///< the block of each live buffer
  std::vector<std::optional<BlockId>> workspaces_;  ///< the block of each running step
};

}  // namespace

std::vector<ReservedPeak> peak_reserved(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                        AllocatorKind kind) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  Replay replay(schedule, platform, kind);
  for (const Event& event : events_of(schedule, timeline)) {
    if (event.starts) {
      replay.start(event.step);
    } else {
      replay.finish(event.step);
    }
  }
  return replay.peaks();
}

}  // namespace plimsoll
