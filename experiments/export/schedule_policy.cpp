#include "experiments/export/schedule_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace plimsoll {
namespace {

/// By storage: the op of the forward that makes it.
std::vector<OpId> forward_makers(const Graph& graph) {
  std::vector<OpId> makers(graph.storages, no_op);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::forward) continue;
    for (const TensorId t : graph.ops[o].outputs) makers[graph[t].storage.index] = id_at<OpId>(o);
  }
  return makers;
}

}  // namespace

std::variant<OpPolicy, std::string> policy_of(const Problem& problem, const Schedule& schedule) {
  const Graph& graph = problem.graph;
  if (problem.platform.devices.size() > 1) return "several devices share the model";
  if (!schedule.codecs.empty()) return "values are packed";
  const std::vector<OpId> makers = forward_makers(graph);
  OpPolicy policy(graph.ops.size(), OpChoice::save);
  std::vector<std::uint32_t> runs(graph.ops.size(), 0);
  for (const Step& step : schedule.steps) {
    const bool is_run = step.kind == StepKind::forward || step.kind == StepKind::recompute;
    if (!is_run || step.micro_batch > 0) continue;
    if (++runs[step.op.index] > 2) return fmt::format("'{}' runs a third time", graph[step.op].name);
    if (runs[step.op.index] == 2) policy[step.op.index] = OpChoice::recompute;
  }
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::offload || step.micro_batch > 0) continue;
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      const Buffer& buffer = schedule[b];
      const Tensor& tensor = graph[buffer.tensor];
      const OpId maker = makers[tensor.storage.index];
      if (maker == no_op) return fmt::format("'{}' is moved, which no op of the forward makes", tensor.name);
      if (buffer.range_length != tensor.bytes) return fmt::format("only a part of '{}' is moved", tensor.name);
      OpChoice& choice = policy[maker.index];
      if (choice == OpChoice::recompute) return fmt::format("'{}' is moved and made again", tensor.name);
      choice = OpChoice::offload;
    }
  }
  return policy;
}

}  // namespace plimsoll
