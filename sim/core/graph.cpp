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

}  // namespace plimsoll
