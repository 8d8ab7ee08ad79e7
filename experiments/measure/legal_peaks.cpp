// What is live is what the events that have come have taken and given back. A set of events that may have come contains
// with each event those that come before it: a closure of a graph. The closure of the largest weight is a smallest cut.
// Source: Picard, "Maximal Closure of a Graph and Applications to Combinatorial Problems", 1976.

#include "experiments/measure/legal_peaks.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sim/bound/max_flow.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

/// Events 2 s and 2 s + 1 are the start and the finish of step s.
struct Events {
  std::vector<std::int64_t> taken;               ///< bytes, below 0 where they are given back
  std::vector<std::vector<std::size_t>> before;  ///< what must have come
};

constexpr std::size_t start_of(std::size_t step) {
  return 2 * step;
}
constexpr std::size_t finish_of(std::size_t step) {
  return 2 * step + 1;
}

std::int64_t bytes_in(const Schedule& schedule, Slice buffers, MemoryId memory) {
  std::int64_t sum = 0;
  for (const BufferId b : schedule.buffers_in(buffers))
    sum += schedule[b].memory == memory ? schedule[b].bytes.count : 0;
  return sum;
}

Events events_of(const Schedule& schedule, const Platform& platform, MemoryId memory) {
  const std::vector<MemoryId> workspace_of = workspace_memories(schedule, platform);
  Events events;
  std::vector<std::optional<std::size_t>> last(schedule.streams.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool is_own = workspace_of[step.stream.index] == memory;
    const std::int64_t workspace = is_own ? step.workspace.count : 0;
    events.taken.push_back(bytes_in(schedule, step.allocates, memory) + workspace);
    events.taken.push_back(-bytes_in(schedule, step.frees, memory) - workspace);
    std::vector<std::size_t>& before = events.before.emplace_back();
    for (const StepId wait : schedule.waits_of(step)) before.push_back(finish_of(wait.index));
    std::optional<std::size_t>& predecessor = last[step.stream.index];
    if (predecessor) before.push_back(finish_of(*predecessor));
    predecessor = s;
    events.before.push_back({start_of(s)});
  }
  return events;
}

/// The most that `sign` times the live bytes can be; where a step is given, while it runs.
std::int64_t extreme(const Events& events, int sign, std::optional<std::size_t> running) {
  const std::size_t count = events.taken.size(), source = count, sink = count + 1;
  FlowGraph graph(count + 2);
  for (std::size_t e = 0; e < count; ++e) {
    const auto weight = static_cast<double>(sign * events.taken[e]);
    if (weight > 0) graph.edge(source, e, weight);
    if (weight < 0) graph.edge(e, sink, -weight);
    for (const std::size_t earlier : events.before[e]) graph.edge(e, earlier, FlowGraph::unlimited);
  }
  if (running) graph.edge(source, start_of(*running), FlowGraph::unlimited);
  if (running) graph.edge(finish_of(*running), sink, FlowGraph::unlimited);
  const std::vector<bool> come = graph.cut(source, sink).source_side;
  std::int64_t sum = 0;
  for (std::size_t e = 0; e < count; ++e) sum += come[e] ? sign * events.taken[e] : 0;
  return sum;
}

/// What is live when each step has started, one step after the other, the most first: one of the legal orders, so that
/// none of the least can be more.
std::vector<std::pair<std::int64_t, std::size_t>> live_in_issue_order(const Events& events) {
  std::vector<std::pair<std::int64_t, std::size_t>> live;
  std::int64_t sum = 0;
  for (std::size_t s = 0; s < events.taken.size() / 2; ++s) {
    live.emplace_back(sum + events.taken[start_of(s)], s);
    sum += events.taken[start_of(s)] + events.taken[finish_of(s)];
  }
  std::ranges::sort(live, std::ranges::greater{});
  return live;
}

}  // namespace

LegalPeaks legal_peaks(const Schedule& schedule, const Platform& platform, MemoryId memory) {
  const Events events = events_of(schedule, platform, memory);
  std::int64_t resident = 0;
  for (const BufferId b : schedule.resident) resident += schedule[b].memory == memory ? schedule[b].bytes.count : 0;
  std::int64_t least = 0;
  for (const auto& [live, s] : live_in_issue_order(events)) {
    if (live <= least) break;  // no later step can have more in every order
    least = std::max(least, -extreme(events, -1, s));
  }
  return {Bytes{resident + least}, Bytes{resident + extreme(events, 1, std::nullopt)}};
}

}  // namespace plimsoll
