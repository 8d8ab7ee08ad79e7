#include "sim/ops/layers.h"

#include <algorithm>
#include <optional>

#include "sim/core/op_kind.h"

namespace plimsoll {

SavedBy layer_of(const Op& op) {
  const std::optional<OpKind> kind = nearest_kind(op.kind);
  return kind ? row_of(*kind).layer : SavedBy::other;
}

std::int64_t kernel_of(const Graph& graph, const Op& op) {
  const std::optional<OpKind> kind = op_kind(op);
  const bool is_of_networks = kind && row_of(*kind).names.pytorch.empty();
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) {
      const Tensor& tensor = graph[t];
      const bool is_weight = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient;
      if (!is_weight || tensor.shape.size() != 4) continue;
      // This project's networks have height x width x in x out, PyTorch out x in x height x width.
      const std::size_t height = is_of_networks ? 0 : 2;
      return std::max(tensor.shape[height], tensor.shape[height + 1]);
    }
  }
  return 0;
}

}  // namespace plimsoll
