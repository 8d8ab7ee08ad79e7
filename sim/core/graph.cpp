#include "sim/core/graph.h"

namespace plimsoll {

Bytes bytes_of_kind(const Graph& graph, TensorKind kind) {
  std::vector<bool> seen(graph.storages, false);
  Bytes sum;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != kind || seen[tensor.storage.index]) continue;
    seen[tensor.storage.index] = true;
    sum += tensor.bytes;
  }
  return sum;
}

double issued_kernels(const Op& op) {
  return op.is_view ? 0 : op.kernels.value_or(op.launches);
}

std::vector<TensorId> unread_parameters(const Graph& graph) {
  std::vector<bool> read(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.inputs) read[t.index] = true;
  }
  std::vector<TensorId> unread;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::parameter && !read[t]) unread.push_back(id_at<TensorId>(t));
  }
  return unread;
}

}  // namespace plimsoll
