#include "sim/memory/replay.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/containers/in_order.h"
#include "sim/core/expects.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/judge/workspace_memories.h"
#include "sim/memory/offset_assignment.h"
#include "sim/memory/round.h"
#include "sim/memory/step_orders.h"

namespace plimsoll {
namespace {

// In which order the starts and finishes of steps reach an allocator.

struct ReplayEvent {
  Seconds date;
  std::uint32_t round = 0;
  bool starts = false;
  StreamId stream;
  StepId step;
};

/// Starts and finishes that change a memory, and the starts of steps with an order of their own: by date, then round,
/// finishes before starts, then stream and step.
std::vector<ReplayEvent> replay_order(const Schedule&, const Timeline&, const StepOrders& = {});

std::vector<ReplayEvent> replay_order(const Schedule& schedule, const Timeline& timeline, const StepOrders& orders) {
  std::vector<ReplayEvent> events;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const bool works = step.workspace > Bytes{0};
    const auto id = id_at<StepId>(s);
    const bool is_ordered = !orders.steps.empty() && orders.steps[s];
    if (works || is_ordered || step.allocates.count > 0 || step.frees.count > 0)
      events.push_back({ran.start, ran.start_round, true, step.stream, id});
    if (!works && step.frees.count == 0) continue;
    // A measured timeline knows no rounds; a step of zero duration still allocates before it frees.
    const bool instant = ran.finish == ran.start;
    const std::uint32_t round = instant ? std::max(ran.finish_round, ran.start_round + 1) : ran.finish_round;
    events.push_back({ran.finish, round, false, step.stream, id});
  }
  put_in_order(events, [](const ReplayEvent& e) { return std::tuple(e.date, e.round, e.starts, e.stream, e.step); });
  return events;
}

// Devices whose memory is planned before the run: every buffer and workspace has its place in one block.

constexpr Bytes driver_unit{2LL << 20};

/// The lifetimes in one memory, in places of the order of replay.
struct Planned {
  std::vector<Lifetime> lifetimes;
  std::vector<Bytes> requested;
};

class Lifetimes {
 public:
  Lifetimes(const Schedule& schedule, const Timeline& timeline, const Platform& platform)
      : schedule_(schedule),
        workspace_memories_(workspace_memories(schedule, platform)),
        memories_(platform.memories.size()),
        places_(schedule.buffers.size()) {
    for (const BufferId b : schedule.resident) begin(b, 0);
    const std::vector<ReplayEvent> events = replay_order(schedule, timeline);
    const auto end = static_cast<std::uint32_t>(events.size() + 1);
    std::vector<std::optional<std::size_t>> workspaces(schedule.steps.size());
    for (std::uint32_t e = 0; e < events.size(); ++e) {
      const Step& step = schedule[events[e].step];
      std::optional<std::size_t>& workspace = workspaces[events[e].step.index];
      Planned& memory = memories_[workspace_memories_[step.stream.index].index];
      if (events[e].starts) {
        for (const BufferId b : schedule.buffers_in(step.allocates)) begin(b, e + 1);
        if (step.workspace > Bytes{0}) workspace = add(memory, step.workspace, e + 1);
      } else {
        if (workspace) memory.lifetimes[*workspace].end = e + 1;
        for (const BufferId b : schedule.buffers_in(step.frees)) {
          if (places_[b.index]) memories_[schedule[b].memory.index].lifetimes[*places_[b.index]].end = e + 1;
        }
      }
    }
    for (Planned& memory : memories_) {
      for (Lifetime& l : memory.lifetimes) l.end = l.end == 0 ? end : l.end;  // it stays
    }
  }

  const std::vector<Planned>& by_memory() const { return memories_; }

 private:
  static std::size_t add(Planned& memory, Bytes bytes, std::uint32_t when) {
    memory.lifetimes.push_back({round_up(bytes, CachingAllocator::rounding), when, 0});
    memory.requested.push_back(bytes);
    return memory.lifetimes.size() - 1;
  }

  void begin(BufferId b, std::uint32_t when) {
    const Buffer& buffer = schedule_[b];
    if (buffer.bytes > Bytes{0}) places_[b.index] = add(memories_[buffer.memory.index], buffer.bytes, when);
  }

  const Schedule& schedule_;
  std::vector<MemoryId> workspace_memories_;  ///< by stream
  std::vector<Planned> memories_;
  std::vector<std::optional<std::size_t>> places_;  ///< of each buffer among the lifetimes of its memory
};

/// The fullest moment: which lifetimes are live then.
std::vector<std::size_t> fullest(const Planned& memory, const std::vector<Bytes>& sizes) {
  std::uint32_t end = 0;
  for (const Lifetime& l : memory.lifetimes) end = std::max(end, l.end);
  std::vector<Bytes> change(end + 1);
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    change[memory.lifetimes[b].begin] += sizes[b];
    change[memory.lifetimes[b].end] -= sizes[b];
  }
  Bytes live, most;
  std::uint32_t when = 0;
  for (std::uint32_t e = 0; e <= end; ++e) {
    live += change[e];
    if (live > most) {
      most = live;
      when = e;
    }
  }
  std::vector<std::size_t> there;
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    if (memory.lifetimes[b].begin <= when && when < memory.lifetimes[b].end) there.push_back(b);
  }
  return there;
}

Bytes sum_of(const std::vector<Bytes>& sizes, const std::vector<std::size_t>& which) {
  Bytes sum;
  for (const std::size_t b : which) sum += sizes[b];
  return sum;
}

ReservedPeak planned_peak(const Planned& memory, std::optional<Bytes> limit) {
  const OffsetPlan plan = assign_offsets(memory.lifetimes);
  ReservedPeak peak;
  peak.live = peak.requested = sum_of(memory.requested, fullest(memory, memory.requested));
  peak.allocated = peak.active = plan.load;
  peak.reserved = round_up(plan.size, driver_unit);
  std::vector<Bytes> sizes;
  for (const Lifetime& l : memory.lifetimes) sizes.push_back(l.size);
  std::vector<std::size_t> there = fullest(memory, sizes);
  std::ranges::sort(there, {}, [&](std::size_t b) { return plan.offsets[b]; });
  Bytes top, gap;
  for (const std::size_t b : there) {
    gap = std::max(gap, plan.offsets[b] - top);
    top = plan.offsets[b] + sizes[b];
  }
  gap = std::max(gap, peak.reserved - top);
  peak.fullest = {sum_of(memory.requested, there), plan.load, plan.load, peak.reserved, peak.reserved - plan.load, gap};
  if (limit && peak.reserved > *limit) {
    peak.out_of_memory =
        OutOfMemory{.step = {}, .requested = plan.load, .reserved = {}, .allocated = {}, .limit = *limit};
  }
  return peak;
}

/// One per memory of the platform; those that are no device's reserve their live bytes. Sizes are rounded up to 512 B,
/// the block to the 2 MiB of the driver. A plan that is larger than the capacity or the budget is out of memory.
std::vector<ReservedPeak> planned_peaks(const Schedule& schedule, const Timeline& timeline, const Platform& platform) {
  const Lifetimes lifetimes(schedule, timeline, platform);
  std::vector<ReservedPeak> peaks;
  for (std::size_t m = 0; m < platform.memories.size(); ++m) {
    const Planned& memory = lifetimes.by_memory()[m];
    const bool is_device = platform.memories[m].device.has_value();
    if (is_device) {
      peaks.push_back(planned_peak(memory, platform.memories[m].capacity));
    } else {
      const Bytes live = sum_of(memory.requested, fullest(memory, memory.requested));
      peaks.push_back({.reserved = live, .allocated = live, .live = live, .active = live, .requested = live});
      peaks.back().fullest = {live, live, live, live, {}, {}};
    }
  }
  return peaks;
}

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

  void is_live(Bytes bytes) {
    live_ += bytes;
    if (live_ <= peak_.live) return;
    peak_.live = live_;
    if (allocator_) return;
    peak_.reserved = peak_.allocated = peak_.active = peak_.requested = peak_.live;
    peak_.fullest = {peak_.live, peak_.live, peak_.live, peak_.live, {}, {}};
  }
  void is_dead(Bytes bytes) { live_ -= bytes; }

  /// A block of the allocator's.
  BlockId allocate(Bytes bytes, StreamId stream) {
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
  return {CachingAllocator(choice.caching, memory.capacity), id_at<StreamId>(index)};
}

class Replay {
 public:
  Replay(const Schedule& schedule, const Platform& platform, const AllocatorChoice& choice, const StepOrders& orders,
         bool records)
      : schedule_(schedule),
        platform_(platform),
        orders_(orders),
        workspace_memories_(workspace_memories(schedule, platform)),
        blocks_(schedule.buffers.size()),
        is_alive_(schedule.buffers.size()),
        workspaces_(schedule.steps.size()),
        has_cublas_(schedule.streams.size(), !choice.cublas_workspace) {
    for (const Memory& memory : platform.memories) memories_.push_back(memory_of(schedule, memory, choice));
    if (records) {
      for (ReplayedMemory& memory : memories_) memory.record_events();
    }
  }

  /// What is there from the beginning. A first iteration finds no optimizer states yet.
  void begin(bool is_first) {
    for (const BufferId b : schedule_.resident) {
      const bool is_there = is_alive_[b.index] || (is_first && orders_.comes_late[b.index]);
      if (!is_there) allocate(b, {});
    }
  }

  /// States appear, then all goes that is not there from the beginning.
  void end_first() {
    std::vector<bool> stays(schedule_.buffers.size());
    for (const BufferId b : schedule_.resident) {
      stays[b.index] = true;
      if (orders_.comes_late[b.index]) allocate(b, {});
    }
    for (std::size_t b = 0; b < stays.size(); ++b) {
      if (is_alive_[b] && !stays[b]) free(id_at<BufferId>(b));
    }
    for (const auto& [stream, numbered] : iterations_) {
      for (const std::optional<BlockId>& block : numbered) {
        if (block) memories_[workspace_memories_[stream.index].index].free(*block);
      }
    }
    iterations_.clear();
    for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
      for (ReplayedMemory& memory : memories_) memory.reach(id_at<StreamId>(s));
    }
  }

  void start(StepId id, Seconds date) {
    const Step& step = schedule_[id];
    for (ReplayedMemory& memory : memories_) memory.at(date, id);
    const StepOrder* const order = order_of(id);
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      if (order != nullptr && is_made_by(*order, b)) {
        holder_of(b).is_live(schedule_[b].bytes);
        is_alive_[b.index] = true;
      } else {
        allocate(b, id);
      }
    }
    start_cublas(step);
    if (step.workspace > Bytes{0}) {  // below 0: blocks freed early, which no step of the schedule frees
      ReplayedMemory& memory = workspace_memory(step);
      memory.is_live(step.workspace);
      if (memory.has_allocator() && order == nullptr)
        workspaces_[id.index] = memory.allocate(step.workspace, step.stream);
    }
    if (order != nullptr) follow(*order, step);
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      ReplayedMemory& memory = holder_of(b);
      std::erase_if(blocks_[b.index], [&](BlockId block) {
        if (memory.stream_of(block) == step.stream) return false;
        memory.give_up(block, step.stream);
        return true;
      });
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
      free(b);
      holder_of(b).reach(step.stream);
    }
  }

  std::vector<AllocatorRun> runs() {
    std::vector<AllocatorRun> runs;
    for (ReplayedMemory& memory : memories_) runs.push_back(memory.run());
    return runs;
  }

 private:
  ReplayedMemory& workspace_memory(const Step& step) { return memories_[workspace_memories_[step.stream.index].index]; }
  ReplayedMemory& holder_of(BufferId b) { return memories_[schedule_[b].memory.index]; }

  /// Where the device has an allocator, and the step an order of requests.
  const StepOrder* order_of(StepId id) {
    if (orders_.steps.empty() || !orders_.steps[id.index]) return nullptr;
    return workspace_memory(schedule_[id]).has_allocator() ? &*orders_.steps[id.index] : nullptr;
  }

  bool is_made_by(const StepOrder& order, BufferId b) const {
    if (order.iteration) return orders_.is_in_orders[b.index];
    return std::ranges::any_of(order.leaves, [&](const auto& left) { return left.second == b; });
  }

  void follow(const StepOrder& order, const Step& step) {
    ReplayedMemory& memory = workspace_memory(step);
    Numbered own;
    if (order.takes) {
      for (const BlockId block : std::exchange(blocks_[order.takes->index], {})) own.emplace_back(block);
    }
    if (order.iteration && *order.iteration >= iterations_.size()) iterations_.resize(*order.iteration + 1);
    if (order.iteration) iterations_[*order.iteration].first = step.stream;
    Numbered& numbered = order.iteration ? iterations_[*order.iteration].second : own;
    for (const std::int64_t n : *order.order) {
      if (n > 0) {
        numbered.emplace_back(memory.allocate(Bytes{n}, step.stream));
        continue;
      }
      const BlockId block = *std::exchange(numbered[static_cast<std::size_t>(-n) - 1], {});
      if (memory.stream_of(block) == step.stream) {
        memory.free(block);
      } else {
        memory.give_up(block, step.stream);
      }
    }
    for (const auto& [number, b] : order.leaves) blocks_[b.index].push_back(*numbered[number - 1]);
  }

  void free(BufferId b) {
    ReplayedMemory& memory = holder_of(b);
    memory.is_dead(schedule_[b].bytes);
    for (const BlockId block : blocks_[b.index]) memory.free(block);
    blocks_[b.index].clear();
    is_alive_[b.index] = false;
  }

  /// One handle a device: the workspace is taken at the stream's first op and stays.
  void start_cublas(const Step& step) {
    if (has_cublas_[step.stream.index] || schedule_[step.stream].way != way::compute) return;
    has_cublas_[step.stream.index] = true;
    const Device& device = platform_[schedule_[step.stream].device];
    ReplayedMemory& memory = memories_[device.memory.index];
    if (!memory.has_allocator()) return;
    const Bytes bytes = cublas_workspace_bytes(device.model);
    memory.is_live(bytes);
    memory.allocate(bytes, step.stream);
  }

  void allocate(BufferId b, std::optional<StepId> step) {
    const Buffer& buffer = schedule_[b];
    if (buffer.bytes == Bytes{0}) return;
    ReplayedMemory& memory = holder_of(b);
    memory.is_live(buffer.bytes);
    is_alive_[b.index] = true;
    if (!memory.has_allocator()) return;
    StreamId stream = memory.home();
    if (step) {
      const StreamId own = schedule_[*step].stream;
      if (platform_[schedule_[own].device].memory == buffer.memory) stream = own;
    }
    const bool is_one = orders_.pieces.empty() || orders_.pieces[b.index].empty();
    if (is_one) {
      blocks_[b.index].push_back(memory.allocate(buffer.bytes, stream));
      return;
    }
    for (const Bytes piece : orders_.pieces[b.index]) blocks_[b.index].push_back(memory.allocate(piece, stream));
  }

  const Schedule& schedule_;
  const Platform& platform_;
  const StepOrders& orders_;
  std::vector<MemoryId> workspace_memories_;  ///< by stream
  std::vector<ReplayedMemory> memories_;
  std::vector<std::vector<BlockId>> blocks_;               ///< of each live buffer
  std::vector<bool> is_alive_;                             ///< by buffer
  std::vector<std::optional<BlockId>> workspaces_;         ///< the block of each running step
  using Numbered = std::vector<std::optional<BlockId>>;    ///< blocks by number
  std::vector<std::pair<StreamId, Numbered>> iterations_;  ///< of plain training
  std::vector<bool> has_cublas_;                           ///< by stream, or needs none
};

std::vector<AllocatorRun> replayed(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                   const AllocatorChoice& choice, const StepOrders& orders, bool records) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  Replay replay(schedule, platform, choice, orders, records);
  const std::vector<ReplayEvent> events = replay_order(schedule, timeline, orders);
  const auto iterate = [&](Seconds from, bool is_first) {
    for (const ReplayEvent& event : events) {
      if (is_first && schedule[event.step].kind == StepKind::evaluation) continue;
      if (event.starts) {
        replay.start(event.step, from + event.date);
      } else {
        replay.finish(event.step, from + event.date);
      }
    }
  };
  Seconds begin;
  if (!orders.steps.empty()) {
    replay.begin(true);
    iterate(begin, true);
    replay.end_first();
    if (!events.empty()) begin = events.back().date;
  }
  replay.begin(false);
  iterate(begin, false);
  return replay.runs();
}

}  // namespace

std::vector<ReservedPeak> peak_reserved(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                        const AllocatorChoice& choice, const StepOrders& orders) {
  std::vector<ReservedPeak> peaks;
  if (choice.kind == AllocatorKind::planned) return planned_peaks(schedule, timeline, platform);
  for (const AllocatorRun& run : replayed(schedule, timeline, platform, choice, orders, false))
    peaks.push_back(run.peak);
  return peaks;
}

std::vector<AllocatorRun> allocator_runs(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                         const AllocatorChoice& choice, const StepOrders& orders) {
  return replayed(schedule, timeline, platform, choice, orders, true);
}

}  // namespace plimsoll
