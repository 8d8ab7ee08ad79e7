// The two ends of a network: embedding, and the gradient of the mean cross-entropy.

#include <cstdint>

#include "validate/cpu/kernel_table.h"
#include "validate/reference/layers.h"

namespace plimsoll::cpu_kernels {
namespace {

const std::int32_t* tokens(const KernelArguments& a) {
  return static_cast<const std::int32_t*>(a.inputs[0]);
}

}  // namespace

Kernel embedding(const Graph& graph, const Op& op) {
  const Tensor &table = graph[op.inputs[1]], &positions = graph[op.inputs[2]];
  const plain::EmbeddingSizes s{graph[op.inputs[0]].bytes.count / 4, positions.shape[0], positions.shape[1],
                                table.shape[0]};
  return {[s](const KernelArguments& a) { plain::embedding(tokens(a), a.in(1), a.in(2), s, a.out()); }, {}};
}

Kernel embedding_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor &table = graph[op.outputs[0]], &positions = graph[op.outputs[1]];
  const plain::EmbeddingSizes s{graph[op.inputs[0]].bytes.count / 4, positions.shape[0], positions.shape[1],
                                table.shape[0]};
  return {
      [s](const KernelArguments& a) { plain::embedding_weight_gradient(tokens(a), a.in(1), s, a.out(0), a.out(1)); },
      {}};
}

Kernel cross_entropy_gradient(const Graph& graph, const Op& op) {
  const RowSizes s = row_sizes(graph[op.inputs[0]]);
  return {
      [s](const KernelArguments& a) { plain::cross_entropy_gradient(a.in(0), s.rows, s.columns, a.labels, a.out()); },
      {}};
}

}  // namespace plimsoll::cpu_kernels
