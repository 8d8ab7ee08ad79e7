#include "sim/core/check.h"

#include "sim/core/judge.h"

namespace plimsoll {

Judge::Judge(const Schedule& schedule, const Graph& graph, const Platform& platform, std::size_t limit)
    : schedule_(schedule), graph_(graph), platform_(platform), limit_(limit), held_(schedule.buffers.size()) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) makers_[t].push_back(id_at<OpId>(o));
    }
  }
}

std::vector<Violation> Judge::run() {
  if (!well_formed()) return std::move(found_);
  before_.emplace(schedule_);
  last_of_collective_.resize(schedule_.collectives.size());
  steps_of_collective_.resize(schedule_.collectives.size());
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    const CollectiveId c = schedule_.steps[s].collective;
    if (c == no_collective) continue;
    last_of_collective_[c.index] = id_at<StepId>(s);
    steps_of_collective_[c.index].push_back(id_at<StepId>(s));
  }
  for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
    hosts_.push_back(host_memory(platform_, id_at<DeviceId>(d)));
  }
  for (const BufferId b : schedule_.resident) start_resident(b);
  for (std::size_t s = 0; s < schedule_.steps.size() && found_.size() < limit_; ++s) judge(id_at<StepId>(s));
  if (found_.size() < limit_) judge_completeness();
  return std::move(found_);
}

std::string Judge::text(StepId s) const {
  const Step& step = schedule_[s];
  std::string words = "step " + std::to_string(s.index);
  if (step.op != no_op)
    words += " ('" + graph_[step.op].name + "', micro-batch " + std::to_string(step.micro_batch) + ")";
  return words;
}

std::string Judge::text(BufferId b) const {
  const Buffer& buffer = schedule_[b];
  return "buffer " + std::to_string(b.index) + " ('" + graph_[buffer.tensor].name + "', micro-batch " +
         std::to_string(buffer.micro_batch) + ")";
}

void Judge::report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what) {
  if (found_.size() < limit_) found_.push_back({rule, step, buffer, std::move(what)});
}

void Judge::report(Rule rule, StepId step, BufferId buffer, const std::string& what) {
  report(rule, std::optional(step), std::optional(buffer), text(step) + " " + what + " " + text(buffer));
}

std::vector<Violation> check(const Schedule& schedule, const Graph& graph, const Platform& platform,
                             std::size_t limit) {
  return Judge(schedule, graph, platform, limit).run();
}

std::string name_of(Rule rule) {
  switch (rule) {
    case Rule::malformed:
      return "malformed";
    case Rule::wrong_place:
      return "wrong_place";
    case Rule::not_resident:
      return "not_resident";
    case Rule::missing_input:
      return "missing_input";
    case Rule::wrong_value:
      return "wrong_value";
    case Rule::not_ordered:
      return "not_ordered";
    case Rule::wrong_output:
      return "wrong_output";
    case Rule::lossy:
      return "lossy";
    case Rule::incomplete:
      return "incomplete";
    case Rule::repeated:
      return "repeated";
    case Rule::freed_twice:
      return "freed_twice";
    case Rule::collective:
      return "collective";
  }
  return "unknown";
}

}  // namespace plimsoll
