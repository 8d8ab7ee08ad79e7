// The two ends of a network: embedding, and the gradient of the mean cross-entropy.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/core/op_attribute.h"
#include "validate/cpu/kernels/kernel_table.h"
#include "validate/networks/network.h"
#include "validate/reference/layers.h"

namespace plimsoll::cpu_kernels {
namespace {

const std::int32_t* tokens(const KernelArguments& a) {
  return static_cast<const std::int32_t*>(a.inputs[0]);
}

plain::EmbeddingSizes embedding_sizes(const Tensor& tokens, const Tensor& table, const Tensor& positions) {
  return {tokens.bytes.count / 4, tokens.shape[1], positions.shape[1], table.shape[0]};
}

/// Of the op's positions: a whole sequence's, or those of a slice.
struct PlaceInSequence {
  std::int64_t first = 0, sequence = 0;
};
PlaceInSequence place_of(const Op& op, std::int64_t positions) {
  if (!attribute_of(op, sequence_attribute)) return {0, positions};
  return {whole_attribute(op, first_position_attribute), whole_attribute(op, sequence_attribute)};
}

}  // namespace

Kernel embedding(const Graph& graph, const Op& op) {
  const Tensor& table = graph[op.inputs[1]];
  if (op.inputs.size() == 2) {
    const plain::EmbeddingSizes s = embedding_sizes(graph[op.inputs[0]], table, table);
    return {[s, is_narrow = is_bf16(graph[op.outputs[0]])](const KernelArguments& a) {
              if (is_narrow) return plain::embedding(tokens(a), a.in(1), nullptr, s, a.out_as<Bf16>());
              plain::embedding(tokens(a), a.in(1), nullptr, s, a.out());
            },
            {}};
  }
  const Tensor& positions = graph[op.inputs[2]];
  const plain::EmbeddingSizes s = embedding_sizes(graph[op.inputs[0]], table, positions);
  const std::int64_t first = place_of(op, positions.shape[0]).first * s.width;
  return {[s, first, is_narrow = is_bf16(graph[op.outputs[0]])](const KernelArguments& a) {
            if (is_narrow) return plain::embedding(tokens(a), a.in(1), a.in(2) + first, s, a.out_as<Bf16>());
            plain::embedding(tokens(a), a.in(1), a.in(2) + first, s, a.out());
          },
          {}};
}

Kernel embedding_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor& table = graph[op.outputs[0]];
  if (op.outputs.size() == 1) {
    const plain::EmbeddingSizes s = embedding_sizes(graph[op.inputs[0]], table, table);
    return {[s, is_narrow = is_bf16(graph[op.inputs[1]])](const KernelArguments& a) {
              if (is_narrow) {
                return plain::embedding_weight_gradient(tokens(a), a.in_as<Bf16>(1), s, a.out(), nullptr);
              }
              plain::embedding_weight_gradient(tokens(a), a.in(1), s, a.out(), nullptr);
            },
            {}};
  }
  const Tensor& positions = graph[op.outputs[1]];
  const plain::EmbeddingSizes s = embedding_sizes(graph[op.inputs[0]], table, positions);
  const std::int64_t first = place_of(op, positions.shape[0]).first * s.width, all = positions.bytes.count / 4;
  return {[s, first, all, is_narrow = is_bf16(graph[op.inputs[1]])](const KernelArguments& a) {
            std::fill_n(a.out(1), all, 0.0F);  // other slices have the other positions
            if (is_narrow) {
              return plain::embedding_weight_gradient(tokens(a), a.in_as<Bf16>(1), s, a.out(0), a.out(1) + first);
            }
            plain::embedding_weight_gradient(tokens(a), a.in(1), s, a.out(0), a.out(1) + first);
          },
          {}};
}

Kernel cross_entropy_gradient(const Graph& graph, const Op& op) {
  const Tensor& probabilities = graph[op.inputs[0]];
  const RowSizes s = row_sizes(probabilities);
  if (!attribute_of(op, sequence_attribute)) {
    return {[s, is_narrow = is_bf16(graph[op.outputs[0]])](const KernelArguments& a) {
              if (is_narrow) {
                return plain::cross_entropy_gradient(a.in(0), s.rows, s.columns, a.labels, s.rows, a.out_as<Bf16>());
              }
              plain::cross_entropy_gradient(a.in(0), s.rows, s.columns, a.labels, s.rows, a.out());
            },
            {}};
  }
  const std::int64_t batch = probabilities.shape[0], positions = probabilities.shape[1];
  const PlaceInSequence place = place_of(op, positions);
  std::vector<std::int32_t> labels;  // of the whole sequence's rows
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int64_t whole = row / positions * place.sequence + place.first + row % positions;
    labels.push_back(static_cast<std::int32_t>(whole % s.columns));
  }
  return {[s, labels, all = batch * place.sequence](const KernelArguments& a) {
            plain::cross_entropy_gradient(a.in(0), s.rows, s.columns, labels.data(), all, a.out());
          },
          {}};
}

}  // namespace plimsoll::cpu_kernels
