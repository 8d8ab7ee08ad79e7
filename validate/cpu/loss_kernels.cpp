// The two ends of a network: embedding, and the gradient of the mean cross-entropy.

#include <algorithm>
#include <cstdint>

#include "validate/cpu/kernel_table.h"

namespace plimsoll {
namespace {

/// y[row] = table[token] + positions[row modulo the sequence].
Kernel embedding(const Graph& graph, const Op& op) {
  const std::int64_t sequence = graph[op.inputs[2]].shape[0], width = graph[op.inputs[2]].shape[1];
  const std::int64_t tokens = graph[op.inputs[0]].bytes.count / 4;
  return {[=](const KernelArguments& a) {
            const auto* token = static_cast<const std::int32_t*>(a.inputs[0]);
            for (std::int64_t row = 0; row < tokens; ++row) {
              const float* word = a.in(1) + token[row] * width;
              const float* place = a.in(2) + row % sequence * width;
              for (std::int64_t j = 0; j < width; ++j) a.out()[row * width + j] = word[j] + place[j];
            }
          },
          {}};
}

Kernel embedding_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor &table = graph[op.outputs[0]], &positions = graph[op.outputs[1]];
  const std::int64_t sequence = positions.shape[0], width = positions.shape[1];
  const std::int64_t vocabulary = table.shape[0], tokens = graph[op.inputs[0]].bytes.count / 4;
  return {[=](const KernelArguments& a) {
            const auto* token = static_cast<const std::int32_t*>(a.inputs[0]);
            std::fill_n(a.out(0), vocabulary * width, 0.0F);
            std::fill_n(a.out(1), sequence * width, 0.0F);
            for (std::int64_t row = 0; row < tokens; ++row) {
              const float* gradient = a.in(1) + row * width;
              float* word = a.out(0) + token[row] * width;
              float* place = a.out(1) + row % sequence * width;
              for (std::int64_t j = 0; j < width; ++j) {
                word[j] += gradient[j];
                place[j] += gradient[j];
              }
            }
          },
          {}};
}

/// Of the logits: (probability - [column is the row's label]) / rows, where row r has the label r modulo the classes.
Kernel cross_entropy_gradient(const Graph& graph, const Op& op) {
  const std::int64_t classes = graph[op.inputs[0]].shape.back();
  const std::int64_t rows = graph[op.inputs[0]].bytes.count / 4 / classes;
  return {[=](const KernelArguments& a) {
            const float share = 1.0F / static_cast<float>(rows);
            for (std::int64_t i = 0; i < rows * classes; ++i) a.out()[i] = a.in(0)[i] * share;
            for (std::int64_t row = 0; row < rows; ++row) a.out()[row * classes + row % classes] -= share;
          },
          {}};
}

}  // namespace

std::optional<Kernel> loss_kernel(const Graph& graph, const Op& op) {
  if (op.kind == "embedding") return embedding(graph, op);
  if (op.kind == "embedding_weight_gradient") return embedding_weight_gradient(graph, op);
  if (op.kind == "cross_entropy_gradient") return cross_entropy_gradient(graph, op);
  return std::nullopt;
}

}  // namespace plimsoll
