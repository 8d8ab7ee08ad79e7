#include "validate/networks/network_prefix.h"

#include <algorithm>
#include <set>
#include <string>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Takes ops out of a network's graph; its tensors stay.
template <class Goes>
void leave_out(Graph& graph, Goes goes) {
  std::erase_if(graph.ops, goes);
}

bool makes_needed(const Graph& graph, const Op& op, const std::set<TensorId>& read) {
  return std::ranges::any_of(
      op.outputs, [&](TensorId t) { return read.contains(t) || graph[t].kind == TensorKind::parameter_gradient; });
}

/// Backward ops of the first stages, and those whose results nobody reads then.
void leave_out_unneeded(Graph& graph, std::size_t first) {
  leave_out(graph, [&](const Op& op) { return op.phase != Phase::update && op.stage < first; });
  std::set<TensorId> read;
  std::vector<Op> kept;
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (is_backward(op.phase) && !makes_needed(graph, op, read)) continue;
    if (op.phase != Phase::update) read.insert(op.inputs.begin(), op.inputs.end());
    kept.push_back(op);
  }
  graph.ops.assign(kept.rbegin(), kept.rend());
}

/// Updates of parameters whose gradients nobody makes.
void leave_out_frozen(Graph& graph) {
  std::set<TensorId> made;
  for (const Op& op : graph.ops) made.insert(op.outputs.begin(), op.outputs.end());
  leave_out(graph, [&](const Op& op) {
    return op.phase == Phase::update && std::ranges::none_of(op.inputs, [&](TensorId t) { return made.contains(t); });
  });
}

}  // namespace

Network without_first_stages(const Network& network, std::size_t first) {
  EXPECTS(first < network.boundaries.size());
  if (first == 0) return network;
  const auto cut = static_cast<std::ptrdiff_t>(first);
  Network before = network, behind = network;
  leave_out(before.graph, [&](const Op& op) { return op.phase != Phase::forward || op.stage >= first; });
  before.boundaries.resize(first + 1);
  before.stage_names.resize(first);
  leave_out_unneeded(behind.graph, first);
  leave_out_frozen(behind.graph);
  for (Op& op : behind.graph.ops) op.stage -= op.phase == Phase::update ? 0 : static_cast<std::uint32_t>(first);
  behind.boundaries.erase(behind.boundaries.begin(), behind.boundaries.begin() + cut);
  behind.stage_names.erase(behind.stage_names.begin(), behind.stage_names.begin() + cut);
  behind.graph.tensors[behind.boundaries[0].index].kind = TensorKind::input;
  std::set<TensorId> read;  // parameters of the first stages only are not this network's
  for (const Op& op : behind.graph.ops) read.insert(op.inputs.begin(), op.inputs.end());
  for (const Op& op : before.graph.ops) {
    for (const TensorId t : op.inputs) {
      const bool is_gone = before.graph[t].kind == TensorKind::parameter && !read.contains(t);
      if (is_gone) behind.graph.tensors[t.index].kind = TensorKind::activation;
    }
  }
  behind.before = std::make_shared<const Network>(std::move(before));
  return behind;
}

std::size_t first_stage_of(const Network& network, const Graph& graph, std::size_t stages) {
  if (stages > 0) return network.stage_names.size() - std::min(stages, network.stage_names.size());
  for (std::size_t i = 0; i < network.boundaries.size(); ++i) {
    const std::string& name = network.graph[network.boundaries[i]].name;
    const auto found = std::ranges::find(graph.tensors, name, &Tensor::name);
    if (found != graph.tensors.end() && found->kind == TensorKind::input) return i;
  }
  return 0;
}

}  // namespace plimsoll
