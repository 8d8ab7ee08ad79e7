#include "validate/networks/stage_ops.h"

#include <algorithm>
#include <set>

namespace plimsoll {
namespace {

bool is_boundary(const Network& network, TensorId t) {
  return std::ranges::find(network.boundaries, t) != network.boundaries.end();
}

bool is_attended(const Network& network, TensorId t) {
  return std::ranges::find(network.attended, t, &Attended::value) != network.attended.end();
}

std::set<TensorId> read_by(const Network& network, const std::vector<OpId>& ops) {
  std::set<TensorId> read;
  for (const OpId o : ops) read.insert(network.graph[o].inputs.begin(), network.graph[o].inputs.end());
  return read;
}

}  // namespace

StageOps ops_of(const Network& network, std::size_t stage) {
  StageOps ops;
  for (std::size_t o = 0; o < network.graph.ops.size(); ++o) {
    const Op& op = network.graph.ops[o];
    if (op.stage != stage || op.phase == Phase::update) continue;
    const auto id = id_at<OpId>(o);
    (op.phase == Phase::forward ? ops.forward : ops.backward).push_back(id);
    if (op.phase == Phase::forward) continue;
    (op.phase == Phase::backward_weight ? ops.weight_part : ops.input_part).push_back(id);
  }
  const std::set<TensorId> read = read_by(network, ops.backward), for_weights = read_by(network, ops.weight_part);
  for (const OpId o : ops.forward) {
    const TensorId made = network.graph[o].outputs[0];
    if (!read.contains(made) || is_boundary(network, made) || is_attended(network, made)) continue;
    ops.saved.push_back(made);
    (for_weights.contains(made) ? ops.saved_for_weights : ops.saved_otherwise).push_back(made);
  }
  for (const OpId o : ops.input_part) {
    const TensorId made = network.graph[o].outputs[0];
    if (for_weights.contains(made)) ops.made_for_weights.push_back(made);
  }
  return ops;
}

std::optional<TensorId> boundary_gradient(const Network& network, std::size_t i) {
  if (i == 0 || i >= network.boundaries.size()) return std::nullopt;
  std::set<TensorId> made;
  for (const OpId o : ops_of(network, i).backward) {
    made.insert(network.graph[o].outputs.begin(), network.graph[o].outputs.end());
  }
  for (const OpId o : ops_of(network, i - 1).backward) {
    for (const TensorId t : network.graph[o].inputs) {
      if (made.contains(t)) return t;
    }
  }
  return std::nullopt;
}

bool reads(const Network& network, const std::vector<OpId>& ops, TensorId t) {
  return std::ranges::any_of(
      ops, [&](OpId o) { return std::ranges::find(network.graph[o].inputs, t) != network.graph[o].inputs.end(); });
}

}  // namespace plimsoll
