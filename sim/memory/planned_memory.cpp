#include "sim/memory/planned_memory.h"

#include <algorithm>
#include <optional>

#include "sim/judge/workspace_memories.h"
#include "sim/memory/offset_assignment.h"
#include "sim/memory/replay_order.h"
#include "sim/memory/round.h"

namespace plimsoll {
namespace {

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

}  // namespace

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

}  // namespace plimsoll
