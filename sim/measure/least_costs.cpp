#include "sim/measure/least_costs.h"

#include <algorithm>
#include <optional>

#include "sim/codec/packed_products.h"
#include "sim/core/collective_op.h"

namespace plimsoll {

Bytes smallest_form(const Graph& graph, TensorId t, std::span<const Codec> codecs, const Op* op) {
  Bytes least = graph[t].bytes;
  if (!per_micro_batch(graph[t].kind)) return least;
  for (const Codec& codec : codecs) {
    if ((op != nullptr && !reads_packed(*op, t, codec)) || cannot_pack(codec, graph, graph[t])) continue;
    least = std::min(least, packed_bytes(codec, graph, graph[t]));
  }
  return least;
}

Seconds fastest_on(const Problem& problem, OpId id, DeviceId device, std::span<const Codec> codecs, Saving saving,
                   Backprop backprop) {
  const Graph& graph = problem.graph;
  const Op& op = graph[id];
  if (runs_beside(op)) return {};
  Seconds fastest = duration_on(problem, id, device, saving);
  fastest = std::min(fastest, within(backprop, op, graph.source, problem.platform[device], fastest));
  for (std::uint32_t k = 1; k <= op.alternatives.size(); ++k) {
    fastest = std::min(fastest, duration_on(problem, id, device, Saving::keep, k));
  }
  for (const Codec& codec : codecs) {
    if (!reads_packed(op, codec)) continue;
    for (const TensorId t : op.inputs) {
      if (cannot_pack(codec, graph, graph[t])) continue;
      const std::optional<OnPacked> other = on_packed(problem, id, device, t, codec);
      if (other) fastest = std::min(fastest, other->duration);
    }
  }
  return fastest;
}

Bytes least_workspace(const Op& op, Backprop backprop) {
  Bytes least = std::min(op.workspace, op.accumulate_workspace.value_or(op.workspace));
  if (backprop == Backprop::in_one_call) {
    least = std::min(least, op.released_workspace.value_or(least));
    least = std::min(least, op.released_accumulate_workspace.value_or(least));
  }
  for (const Alternative& way : op.alternatives) least = std::min(least, way.workspace);
  return least;
}

}  // namespace plimsoll
