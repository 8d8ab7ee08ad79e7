#include "experiments/explain/explanation.h"

#include <algorithm>
#include <utility>

#include "experiments/export/step_name.h"
#include "sim/measure/critical_path.h"
#include "sim/measure/op_parts.h"

namespace plimsoll {
namespace {

constexpr std::size_t largest_values = 10;

/// Of a step that is simulated. `is_added`: it stands for what a host or another model of transfers does.
PathLimit limit_of(const Graph& graph, const Schedule& run, const Step& step, bool is_added) {
  if (is_added) return step.kind == StepKind::send ? PathLimit::link : PathLimit::host;
  if (run[step.stream].way.computes_elsewhere()) return PathLimit::host;
  if (step.work.is_transfer() || is_collective(graph, step)) return PathLimit::link;
  switch (step.kind) {
    case StepKind::recompute:
    case StepKind::pack:
    case StepKind::unpack:
      return PathLimit::memory;
    case StepKind::send:
    case StepKind::offload:
    case StepKind::prefetch:
      return PathLimit::link;
    default:
      return PathLimit::compute;
  }
}

/// Of a step's time the share in which its op, which computes, also exchanges values with other ranks.
double exchanged_share(PartsOfOps& parts, const Problem& problem, const Schedule& run, const Step& step, Seconds time) {
  if (step.op == no_op || !(time > Seconds{}) || is_collective(problem.graph, step)) return 0;
  const bool saves = saves_for_backward(run, step, problem.graph[step.op]);
  Seconds exposed;
  for (const ExchangeShare& each : parts.exchanges(step.op)) exposed += saves ? each.exposed : each.exposed_unsaved;
  return std::min(1.0, exposed / time);
}

void add_path(Explanation& made, const AnsweredQuestion& of) {
  const Schedule& schedule = *of.answer.schedule;
  const Retimed run = as_run(of.question, of.problem, schedule);
  std::vector<bool> is_added(run.schedule.steps.size(), true);
  for (const StepId s : run.steps) is_added[s.index] = false;
  const bool is_whole = run.steps.size() == run.schedule.steps.size();
  const Timeline timeline =
      is_whole ? *of.answer.timeline : simulate(run.schedule, of.problem.platform, of.question.engine);
  made.streams = run.schedule.streams;
  PartsOfOps parts(of.problem);
  for (const StepId s : critical_path(run.schedule, timeline)) {
    const Step& step = run.schedule[s];
    const Interval& ran = timeline.steps[s.index];
    const PathLimit limit = limit_of(of.problem.graph, run.schedule, step, is_added[s.index]);
    const std::string name = is_added[s.index] ? "issue" : step_name(of.problem.graph, run.schedule, step);
    const Seconds time = ran.finish - ran.start;
    const Seconds exchanged = exchanged_share(parts, of.problem, run.schedule, step, time) * time;
    ++made.path_steps;
    made.limits[static_cast<std::size_t>(PathLimit::link)] += exchanged;
    made.limits[static_cast<std::size_t>(limit)] += time - exchanged;
    const bool goes_on = !made.path.empty() && made.path.back().stream == step.stream &&
                         made.path.back().limit == limit && made.path.back().kind == step.kind;
    if (!goes_on) made.path.push_back({step.stream, limit, step.kind, ran.start, {}, 0, name, {}});
    made.path.back().issues = is_added[s.index] && limit == PathLimit::host;
    made.path.back().time += time;
    made.path.back().last = name;
    ++made.path.back().steps;
  }
}

/// By buffer: the step that makes it, and the one that frees it.
struct Lives {
  std::vector<std::optional<StepId>> made, freed;

  explicit Lives(const Schedule& schedule) : made(schedule.buffers.size()), freed(schedule.buffers.size()) {
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      for (const BufferId b : schedule.buffers_in(step.allocates)) made[b.index] = id_at<StepId>(s);
      for (const BufferId b : schedule.buffers_in(step.frees)) freed[b.index] = id_at<StepId>(s);
    }
  }
};

PeakContents contents_of(const Problem& problem, const Answer& answer, MemoryId memory, const Lives& lives) {
  const Schedule& schedule = *answer.schedule;
  const AtPeak peak = at_peak(schedule, *answer.timeline, problem.platform, memory);
  PeakContents made{.memory = memory, .peak = answer.timeline->peaks[memory.index]};
  made.by_kind[workspace_kind] = peak.workspace.count;
  for (const BufferId b : peak.buffers) {
    const std::size_t kind = memory_kind(problem.graph, schedule[b]);
    made.by_kind[kind] += schedule[b].bytes.count;
    ++made.buffers[kind];
    if (made.largest.size() < largest_values) made.largest.push_back({b, lives.made[b.index], lives.freed[b.index]});
  }
  return made;
}

}  // namespace

Explanation explain(const AnsweredQuestion& of, Better better) {
  const auto& [question, problem, answer] = of;
  Explanation made{.devices = time_by_device(problem, *answer.schedule, *answer.timeline)};
  add_path(made, of);
  const Lives lives(*answer.schedule);
  for (std::size_t m = 0; m < problem.platform.memories.size(); ++m) {
    if (answer.timeline->peaks[m].bytes == Bytes{}) continue;
    made.memories.push_back(contents_of(problem, answer, id_at<MemoryId>(m), lives));
  }
  if (better == Better::looked_for) made.better = better_plans(of);
  return made;
}

PathLimit most_limiting(const Explanation& of) {
  return static_cast<PathLimit>(std::ranges::max_element(of.limits) - of.limits.begin());
}

}  // namespace plimsoll
