#include "sim/bound/guaranteed_peak.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "sim/bound/max_flow.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

/// Events of a stream in a row. Only the first of them follows events of other streams, and others follow only the
/// last. A set that has some but not all of them has those up to the best.
struct Stretch {
  std::size_t stream = 0;
  Bytes total, best;                    ///< change by all of them; the largest by the first so many
  std::optional<std::size_t> previous;  ///< on its stream
  std::vector<std::size_t> after;       ///< on others

  void add(Bytes change) {
    total += change;
    best = std::max(best, total);
  }
};

class Stretches {
 public:
  Stretches(const Schedule& schedule, const Platform& platform, MemoryId memory)
      : schedule_(schedule),
        memory_(memory),
        workspace_of_(workspace_memories(schedule, platform)),
        open_(schedule.streams.size()),
        last_(schedule.streams.size()),
        changes_(schedule.streams.size()),
        ends_in_(schedule.steps.size()) {
    const std::vector<bool> is_waited_for = waited_for();
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) add(id_at<StepId>(s), is_waited_for[s]);
  }

  /// The largest change of a set of events that has all predecessors of its events.
  Bytes largest_change() const {
    double sum = 0;
    for (const Stretch& stretch : list_) sum += static_cast<double>(stretch.best.count);
    if (changing_streams() <= 1 || sum > largest_flow) return largest_change_without_waits();
    const std::size_t source = 2 * list_.size(), sink = source + 1;
    FlowGraph graph(sink + 1);
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Stretch& stretch = list_[i];
      graph.edge(source, begun(i), static_cast<double>(stretch.best.count));
      graph.edge(done(i), begun(i), FlowGraph::unlimited);
      graph.edge(done(i), sink, static_cast<double>((stretch.best - stretch.total).count));
      if (stretch.previous) graph.edge(begun(i), done(*stretch.previous), FlowGraph::unlimited);
      for (const std::size_t other : stretch.after) graph.edge(begun(i), done(other), FlowGraph::unlimited);
    }
    return Bytes{static_cast<std::int64_t>(sum - graph.cut(source, sink).flow)};
  }

 private:
  std::ptrdiff_t changing_streams() const { return std::ranges::count(changes_, true); }

  /// The same where streams do not wait for each other: each has its own best.
  Bytes largest_change_without_waits() const {
    std::vector<Bytes> before(last_.size()), best(last_.size());
    for (const Stretch& stretch : list_) {
      best[stretch.stream] = std::max(best[stretch.stream], before[stretch.stream] + stretch.best);
      before[stretch.stream] += stretch.total;
    }
    return std::accumulate(best.begin(), best.end(), Bytes{});
  }

  static std::size_t begun(std::size_t stretch) { return 2 * stretch; }
  static std::size_t done(std::size_t stretch) { return 2 * stretch + 1; }

  /// By step: whether one of another stream waits for it.
  std::vector<bool> waited_for() const {
    std::vector<bool> is_waited_for(schedule_.steps.size());
    for (const Step& step : schedule_.steps) {
      for (const StepId wait : schedule_.waits_of(step)) {
        if (schedule_[wait].stream != step.stream) is_waited_for[wait.index] = true;
      }
    }
    return is_waited_for;
  }

  void add(StepId id, bool is_waited_for) {
    const Step& step = schedule_[id];
    std::vector<std::size_t> after;
    for (const StepId wait : schedule_.waits_of(step)) {
      if (schedule_[wait].stream != step.stream) after.push_back(ends_in_[wait.index]);
    }
    std::optional<std::size_t>& open = open_[step.stream.index];
    if (!open || !after.empty()) {
      std::optional<std::size_t>& last = last_[step.stream.index];
      list_.push_back(
          {.stream = step.stream.index, .total = {}, .best = {}, .previous = last, .after = std::move(after)});
      open = last = list_.size() - 1;
    }
    Stretch& stretch = list_[*open];
    const Bytes workspace = workspace_of_[step.stream.index] == memory_ ? step.workspace : Bytes{};
    for (const Bytes change : {bytes_of(step.allocates) + workspace, Bytes{} - bytes_of(step.frees) - workspace}) {
      stretch.add(change);
      if (change != Bytes{}) changes_[step.stream.index] = true;
    }
    if (!is_waited_for) return;
    ends_in_[id.index] = *open;
    open.reset();
  }

  Bytes bytes_of(Slice buffers) const {
    Bytes sum;
    for (const BufferId b : schedule_.buffers_in(buffers)) {
      if (schedule_[b].memory == memory_) sum += schedule_[b].bytes;
    }
    return sum;
  }

  const Schedule& schedule_;
  MemoryId memory_;
  std::vector<MemoryId> workspace_of_;                   ///< by stream
  std::vector<Stretch> list_;                            ///< in order of issue
  std::vector<std::optional<std::size_t>> open_, last_;  ///< by stream: one that goes on; the last one
  std::vector<bool> changes_;                            ///< by stream: whether any event changes the memory
  std::vector<std::size_t> ends_in_;                     ///< by step that others wait for: the stretch that it ends
};

}  // namespace

Bytes guaranteed_peak(const Schedule& schedule, const Platform& platform, MemoryId memory) {
  Bytes resident;
  for (const BufferId b : schedule.resident) {
    if (schedule[b].memory == memory) resident += schedule[b].bytes;
  }
  return resident + Stretches(schedule, platform, memory).largest_change();
}

}  // namespace plimsoll
