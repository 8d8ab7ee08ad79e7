// The transform `shared_norm`: a layer norm's backward reads what the layer norm has made, from which it takes the
// normalized values back, (y - b) / w; the next layer keeps that anyway, and the norm's input is kept by nobody.
// Source: Yang et al., "Reducing fine-tuning memory overhead by approximate and memory-sharing backpropagation", ICML
// 2024 (memory-sharing backpropagation); there w and b are merged into the next layer, here they stay.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "sim/core/op_kind.h"
#include "strategies/api/strategy.h"

namespace plimsoll {
namespace {

/// The forward whose statistics the backward reads.
const Op* norm_of(const Graph& graph, const Op& backward) {
  const auto is_read = [&](TensorId t) { return std::ranges::find(backward.inputs, t) != backward.inputs.end(); };
  const auto found = std::ranges::find_if(graph.ops, [&](const Op& op) {
    return op_kind(op) == OpKind::native_layer_norm && op.phase == Phase::forward && !op.saved.empty() &&
           std::ranges::all_of(op.saved, is_read) && !op.inputs.empty() && is_read(op.inputs[0]);
  });
  return found == graph.ops.end() ? nullptr : &*found;
}

bool some_op_overwrites(const Graph& graph, TensorId t) {
  return std::ranges::any_of(graph.ops,
                             [&](const Op& op) { return std::ranges::find(op.mutates, t) != op.mutates.end(); });
}

std::variant<Problem, std::string> shared_norm(const Problem& problem, const Options&) {
  if (problem.chain) return "'" + problem.graph.name + "' is a chain, and only graphs say what layer norms keep";
  Problem changed = problem;
  std::size_t norms = 0;
  for (Op& op : changed.graph.ops) {
    if (op_kind(op) != OpKind::native_layer_norm_backward) continue;
    const Op* forward = norm_of(problem.graph, op);
    if (forward == nullptr || some_op_overwrites(problem.graph, forward->outputs[0])) continue;
    std::ranges::replace(op.inputs, forward->inputs[0], forward->outputs[0]);
    ++norms;
  }
  if (norms == 0) return "'" + problem.graph.name + "' has no layer norm that keeps its input";
  changed.notes.push_back(fmt::format("shared_norm: {} layer norms keep their output instead of their input", norms));
  return changed;
}

}  // namespace

extern constinit const StrategyInfo shared_norm_strategy{
    .name = "shared_norm",
    .family = Family::transform,
    .summary = "lets layer norms keep their result, which the next layer keeps anyway, instead of their input",
    .source = "Yang et al., Approximate and Memory-Sharing Backpropagation, ICML 2024",
    .needs_shapes = true,
    .kind = TransformStrategy{.transform = shared_norm},
};

}  // namespace plimsoll
