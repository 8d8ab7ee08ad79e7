#include "experiments/study/memory_by_kind.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

struct Event {
  Seconds date;
  std::uint32_t round = 0;
  std::uint32_t step_and_start = 0;  ///< step times two, plus one for its start
};

bool earlier(const Event& a, const Event& b) {
  return std::tuple(a.date, a.round, a.step_and_start & 1U, a.step_and_start) <
         std::tuple(b.date, b.round, b.step_and_start & 1U, b.step_and_start);
}

std::vector<Event> events_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<Event> events;
  events.reserve(2 * schedule.steps.size());
  for (std::uint32_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const bool works = step.workspace != Bytes{0};
    if (works || step.allocates.count > 0) events.push_back({ran.start, ran.start_round, 2 * s + 1});
    if (works || step.frees.count > 0) events.push_back({ran.finish, ran.finish_round, 2 * s});
  }
  std::ranges::sort(events, earlier);
  return events;
}

/// One memory within the current date.
struct Level {
  BytesByKind live{}, fullest{}, told{};
  std::int64_t total = 0, fullest_total = 0, told_total = 0;
  bool changed = false;
};

class KindWalk {
 public:
  KindWalk(const Graph& graph, const Platform& platform, const Schedule& schedule,
           const std::function<void(MemoryId, Seconds, const BytesByKind&)>& visit)
      : graph_(graph),
        workspace_memories_(workspace_memories(schedule, platform)),
        schedule_(schedule),
        visit_(visit),
        levels_(platform.memories.size()) {
    for (const BufferId b : schedule.resident) add(b, 1);
    tell(Seconds{0}, true);
  }

  void run(const std::vector<Event>& events) {
    for (std::size_t e = 0; e < events.size(); ++e) {
      apply(events[e]);
      if (e + 1 == events.size() || events[e + 1].date != events[e].date) tell(events[e].date, false);
    }
  }

 private:
  void change(MemoryId memory, std::size_t kind, std::int64_t bytes) {
    Level& level = levels_[memory.index];
    if (!level.changed) {
      level.changed = true;
      level.fullest_total = level.total;
      changed_.push_back(memory);
    }
    level.live[kind] += bytes;
    level.total += bytes;
    if (level.total > level.fullest_total) {
      level.fullest = level.live;
      level.fullest_total = level.total;
    }
  }

  void add(BufferId b, std::int64_t sign) {
    const Buffer& buffer = schedule_[b];
    change(buffer.memory, memory_kind(graph_, buffer), sign * buffer.bytes.count);
  }

  void apply(const Event& event) {
    const Step& step = schedule_.steps[event.step_and_start / 2];
    const bool starts = (event.step_and_start & 1U) != 0;
    const std::int64_t sign = starts ? 1 : -1;
    const auto work = [&] {
      change(workspace_memories_[step.stream.index], workspace_kind, sign * step.workspace.count);
    };
    const bool dies_early = starts && step.workspace < Bytes{0};  // before what the step allocates is there
    if (dies_early) work();
    for (const BufferId b : schedule_.buffers_in(starts ? step.allocates : step.frees)) add(b, sign);
    if (!dies_early && step.workspace != Bytes{0}) work();
  }

  void tell(Seconds date, bool all) {
    if (all) {
      changed_.clear();
      for (std::size_t m = 0; m < levels_.size(); ++m) changed_.push_back(id_at<MemoryId>(m));
    }
    if (changed_.size() > 1) std::ranges::sort(changed_);
    for (const MemoryId memory : changed_) {
      Level& level = levels_[memory.index];
      level.changed = false;
      const bool stands_out = !all && level.fullest_total > std::max(level.told_total, level.total);
      if (stands_out) visit_(memory, date, level.fullest);
      if (all || stands_out || level.live != level.told) visit_(memory, date, level.live);
      level.told = level.live;
      level.told_total = level.total;
    }
    changed_.clear();
  }

  const Graph& graph_;
  std::vector<MemoryId> workspace_memories_;  // by stream
  const Schedule& schedule_;
  const std::function<void(MemoryId, Seconds, const BytesByKind&)>& visit_;
  std::vector<Level> levels_;
  std::vector<MemoryId> changed_;
};

}  // namespace

std::int64_t sum(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

void walk_memories(const Graph& graph, const Platform& platform, const Schedule& schedule, const Timeline& timeline,
                   const std::function<void(MemoryId, Seconds, const BytesByKind&)>& visit) {
  KindWalk(graph, platform, schedule, visit).run(events_of(schedule, timeline));
}

}  // namespace plimsoll
