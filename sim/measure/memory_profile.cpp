#include "sim/measure/memory_profile.h"

#include <algorithm>
#include <tuple>

#include "sim/core/containers/in_order.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

struct Event {
  Seconds date;
  std::uint32_t round = 0;
  bool starts = false;
  StepId step;
};

/// Starts and finishes that change the memory, in the order in which they happen.
std::vector<Event> events_of(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                             MemoryId memory) {
  const auto inside = [&](Slice slice) {
    return std::ranges::any_of(schedule.buffers_in(slice), [&](BufferId b) { return schedule[b].memory == memory; });
  };
  const std::vector<MemoryId> workspace_of = workspace_memories(schedule, platform);
  std::vector<Event> events;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool works = step.workspace != Bytes{0} && workspace_of[step.stream.index] == memory;
    const Interval& ran = timeline.steps[s];
    if (works || inside(step.allocates)) events.push_back({ran.start, ran.start_round, true, id_at<StepId>(s)});
    if (works || inside(step.frees)) events.push_back({ran.finish, ran.finish_round, false, id_at<StepId>(s)});
  }
  put_in_order(events, [](const Event& e) { return std::tuple(e.date, e.round, e.starts, e.step); });
  return events;
}

/// Walks the events and calls `visit(event, bytes live after it, workspace live after it)`.
template <class Visit>
void walk(const Schedule& schedule, const Platform& platform, MemoryId memory, const std::vector<Event>& events,
          Visit visit) {
  const std::vector<MemoryId> workspace_of = workspace_memories(schedule, platform);
  Bytes live, workspace;
  for (const BufferId b : schedule.resident) {
    if (schedule[b].memory == memory) live += schedule[b].bytes;
  }
  for (const Event& event : events) {
    const Step& step = schedule[event.step];
    const std::int64_t sign = event.starts ? 1 : -1;
    for (const BufferId b : schedule.buffers_in(event.starts ? step.allocates : step.frees)) {
      if (schedule[b].memory == memory) live += sign * schedule[b].bytes;
    }
    if (workspace_of[step.stream.index] == memory) workspace += sign * step.workspace;
    visit(event, live + workspace, workspace);
  }
}

}  // namespace

std::vector<MemoryPoint> memory_profile(const Schedule& schedule, const Timeline& timeline, const Platform& platform,
                                        MemoryId memory) {
  Bytes resident;
  for (const BufferId b : schedule.resident) {
    if (schedule[b].memory == memory) resident += schedule[b].bytes;
  }
  std::vector<MemoryPoint> points{{Seconds{0}, resident}};
  const std::vector<Event> events = events_of(schedule, timeline, platform, memory);
  walk(schedule, platform, memory, events, [&](const Event& event, Bytes live, Bytes) {
    points.push_back({event.date, live});
  });
  return points;
}

AtPeak at_peak(const Schedule& schedule, const Timeline& timeline, const Platform& platform, MemoryId memory) {
  const std::vector<Event> events = events_of(schedule, timeline, platform, memory);
  AtPeak peak;
  std::vector<bool> alive(schedule.buffers.size(), false);
  for (const BufferId b : schedule.resident) {
    alive[b.index] = schedule[b].memory == memory;
    if (alive[b.index]) peak.bytes += schedule[b].bytes;
  }
  std::size_t fullest = 0, walked = 0;  // events up to and with the fullest moment; 0: the start
  walk(schedule, platform, memory, events, [&](const Event&, Bytes live, Bytes workspace) {
    ++walked;
    if (live <= peak.bytes) return;
    fullest = walked;
    peak.bytes = live;
    peak.workspace = workspace;
  });
  for (std::size_t e = 0; e < fullest; ++e) {
    const Step& step = schedule[events[e].step];
    for (const BufferId b : schedule.buffers_in(events[e].starts ? step.allocates : step.frees)) {
      if (schedule[b].memory == memory) alive[b.index] = events[e].starts;
    }
  }
  for (std::size_t b = 0; b < alive.size(); ++b) {
    if (alive[b]) peak.buffers.push_back(id_at<BufferId>(b));
  }
  std::ranges::stable_sort(peak.buffers, std::ranges::greater{}, [&](BufferId b) { return schedule[b].bytes; });
  return peak;
}

}  // namespace plimsoll
