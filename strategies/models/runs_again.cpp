#include "strategies/models/runs_again.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {
namespace {

bool shares_storage(const Graph& graph, const Op& op) {
  return std::ranges::any_of(op.outputs, [&](TensorId made) {
    return std::ranges::any_of(op.inputs, [&](TensorId read) { return graph[read].storage == graph[made].storage; });
  });
}

}  // namespace

std::vector<bool> overwritten_tensors(const Graph& graph) {
  std::vector<bool> overwritten(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) continue;
    for (const TensorId t : op.mutates) overwritten[t.index] = true;
  }
  return overwritten;
}

std::optional<std::string> why_not_again(const Graph& graph, const Op& op, const std::vector<bool>& overwritten) {
  const auto lost = std::ranges::find_if(op.inputs, [&](TensorId t) { return overwritten[t.index]; });
  if (lost != op.inputs.end()) return fmt::format("'{}' reads '{}', which is overwritten", op.name, graph[*lost].name);
  if (!op.recomputable) return fmt::format("'{}' cannot run again", op.name);
  if (shares_storage(graph, op)) {
    return fmt::format("'{}' returns a tensor that shares memory with its input", op.name);
  }
  return std::nullopt;
}

}  // namespace plimsoll
