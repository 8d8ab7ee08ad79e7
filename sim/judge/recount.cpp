#include <algorithm>
#include <tuple>
#include <vector>

#include "sim/core/containers/in_order.h"
#include "sim/core/expects.h"
#include "sim/judge/check.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

struct Change {
  double date = 0;
  std::uint32_t round = 0;
  bool is_start = false;
  StreamId stream;  // starts of one date are in the order of streams, as the engines': where one frees at its start it
                    // matters
  StepId step;
};

}  // namespace

std::vector<Bytes> recount(const Schedule& schedule, const Timeline& timeline, const Platform& platform) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  std::vector<Bytes> live(platform.memories.size());
  for (const BufferId b : schedule.resident) live[schedule[b].memory.index] += schedule[b].bytes;
  std::vector<Bytes> peak = live;
  const std::vector<MemoryId> workspace_of = workspace_memories(schedule, platform);

  std::vector<Change> changes;
  changes.reserve(2 * schedule.steps.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Interval& ran = timeline.steps[s];
    const StreamId stream = schedule.steps[s].stream;
    changes.push_back({ran.start.value, ran.start_round, true, stream, id_at<StepId>(s)});
    changes.push_back({ran.finish.value, ran.finish_round, false, stream, id_at<StepId>(s)});
  }
  put_in_order(changes,
               [](const Change& c) { return std::tuple(c.date, c.round, c.is_start, c.stream.index, c.step.index); });

  for (const Change& change : changes) {
    const Step& step = schedule[change.step];
    const Bytes workspace = change.is_start ? step.workspace : Bytes{-step.workspace.count};
    live[workspace_of[step.stream.index].index] += workspace;
    for (const BufferId b : schedule.buffers_in(change.is_start ? step.allocates : step.frees)) {
      const Bytes bytes = schedule[b].bytes;
      live[schedule[b].memory.index] += change.is_start ? bytes : Bytes{-bytes.count};
    }
    if (!change.is_start) continue;
    for (std::size_t m = 0; m < live.size(); ++m) peak[m] = std::max(peak[m], live[m]);
  }
  return peak;
}

std::vector<Overfull> overfull(std::span<const Bytes> peaks, const Platform& platform, const Schedule& schedule) {
  EXPECTS(peaks.size() == platform.memories.size());
  std::vector<bool> computes(peaks.size(), false);
  for (const Stream& stream : schedule.streams) {
    if (stream.way == way::compute) computes[platform[stream.device].memory.index] = true;
  }
  std::vector<Overfull> memories;
  for (std::size_t m = 0; m < peaks.size(); ++m) {
    const Memory& memory = platform.memories[m];
    const std::optional<Bytes> limit = computes[m] && schedule.budget ? schedule.budget : memory.capacity;
    if (limit && peaks[m] > *limit) memories.push_back({id_at<MemoryId>(m), peaks[m], *limit, computes[m]});
  }
  return memories;
}

}  // namespace plimsoll
