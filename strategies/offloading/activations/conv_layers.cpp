#include "strategies/offloading/activations/conv_layers.h"

#include <algorithm>

#include "strategies/rematerialization/saving/min_cut.h"

namespace plimsoll {
namespace {

bool is_conv_kind(std::string_view kind) {
  constexpr std::string_view backward = "_backward";
  return is_compute_intensive(kind.ends_with(backward) ? kind.substr(0, kind.size() - backward.size()) : kind);
}

/// By op of a graph; a backward is told by its kind or by the parameter that it reads.
std::vector<bool> conv_ops(const Graph& graph) {
  std::vector<bool> conv, weight(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    const auto reads_weight = [&](TensorId t) { return weight[t.index]; };
    conv.push_back(is_conv_kind(op.kind) || (is_backward(op.phase) && std::ranges::any_of(op.inputs, reads_weight)));
    if (!conv.back() || op.phase != Phase::forward) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) weight[t.index] = true;
    }
  }
  return conv;
}

}  // namespace

std::vector<bool> conv_positions(const PartTask& task, const OffloadModel& model) {
  const Graph& graph = task.problem.graph;
  std::vector<bool> conv;
  if (!task.problem.chain) {
    const std::vector<bool> ops = conv_ops(graph);
    for (const Action& action : model.computes) conv.push_back(ops[action.op.index]);
    return conv;
  }
  const std::vector<Stage>& stages = task.problem.chain->stages;
  const auto named = [](const Stage& stage) { return stage.name.find("conv") != std::string::npos; };
  const bool any_named = std::ranges::any_of(stages, named);
  for (const Action& action : model.computes) {
    const std::size_t stage = graph[action.op].stage;
    conv.push_back(any_named ? named(stages[stage]) : stage + 1 < stages.size());
  }
  return conv;
}

}  // namespace plimsoll
