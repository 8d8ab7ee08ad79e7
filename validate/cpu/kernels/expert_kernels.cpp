// A mixture of experts: rows of tokens to experts and back as plain loops, products of all experts by oneDNN.

#include <cstdint>

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/reference/experts.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::memory;

/// Chooses in the scratch, then calls `work(arguments, choice)`. `chances` is that input.
template <class Work>
Kernel chosen_first(const ExpertSizes& s, std::size_t chances, Work work) {
  return {[s, chances, work](const KernelArguments& a) {
            const ExpertChoice choice(a.scratch, s);
            plain::choose(a.in(chances), s, choice);
            work(a, choice);
          },
          Bytes{s.scratch()}};
}

ExpertSizes sizes_of(const Graph& graph, const Op& op, std::size_t chances, TensorId rows) {
  return {graph[op.inputs[chances]], graph[rows], op};
}

/// Of each expert, as stored or transposed.
memory::desc of_experts(const std::vector<std::int64_t>& shape, NumberType type, bool transposed = false) {
  const std::int64_t stride = shape[1] * shape[2];
  if (transposed) return many_matrices({shape[0], shape[2], shape[1]}, {stride, 1, shape[2]}, type);
  return many_matrices({shape[0], shape[1], shape[2]}, {stride, shape[2], 1}, type);
}

Kernel products_of_experts(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  const auto desc = layer<dnnl::matmul>(own_scratch(), a, b, c);
  return bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, a, false, 0}, {DNNL_ARG_WEIGHTS, b, false, 1}, {DNNL_ARG_DST, c, true}});
}

}  // namespace

/// Inputs: x, chances.
Kernel to_experts(const Graph& graph, const Op& op) {
  const ExpertSizes s = sizes_of(graph, op, 1, op.outputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c) {
    for (std::int64_t i = 0; i < s.experts * s.room * s.width; ++i) a.out()[i] = sent_to_expert(s, c, a.in(0), i);
  });
}

/// Inputs: dy, chances.
Kernel to_experts_gradient(const Graph& graph, const Op& op) {
  const ExpertSizes s = sizes_of(graph, op, 1, op.inputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c) {
    for (std::int64_t i = 0; i < s.tokens * s.width; ++i) a.out()[i] = back_from_experts(s, c, a.in(0), i);
  });
}

/// Inputs: rows, chances.
Kernel from_experts(const Graph& graph, const Op& op) {
  const ExpertSizes s = sizes_of(graph, op, 1, op.inputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c) {
    for (std::int64_t i = 0; i < s.tokens * s.width; ++i) a.out()[i] = mixed_of_experts(s, c, a.in(0), a.in(1), i);
  });
}

/// Inputs: dy, rows, chances; outputs: of rows, of chances.
Kernel from_experts_gradient(const Graph& graph, const Op& op) {
  const ExpertSizes s = sizes_of(graph, op, 2, op.inputs[1]);
  return chosen_first(s, 2, [s](const KernelArguments& a, const ExpertChoice& c) {
    for (std::int64_t i = 0; i < s.experts * s.room * s.width; ++i) {
      a.out()[i] = gradient_of_mixed(s, c, a.in(0), a.in(2), i);
    }
    for (std::int64_t t = 0; t < s.tokens; ++t) gradient_of_chances(s, c, a.in(0), a.in(1), a.in(2), t, a.out(1));
  });
}

/// y = x W of every expert.
Kernel expert_product(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const NumberType type = type_of(x);
  const memory::desc weight = of_experts(graph[op.inputs[1]].shape, type);
  return with_parameters_as(
      type, graph, op,
      products_of_experts(of_experts(x.shape, type), weight, of_experts(graph[op.outputs[0]].shape, type)));
}

/// dx = dy W^T.
Kernel expert_product_input_gradient(const Graph& graph, const Op& op) {
  const Tensor& dy = graph[op.inputs[0]];
  const NumberType type = type_of(dy);
  const memory::desc weight = of_experts(graph[op.inputs[1]].shape, type, true);
  return with_parameters_as(
      type, graph, op,
      products_of_experts(of_experts(dy.shape, type), weight, of_experts(graph[op.outputs[0]].shape, type)));
}

/// dW = x^T dy, in fp32.
Kernel expert_product_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const NumberType type = type_of(x);
  return products_of_experts(of_experts(x.shape, type, true), of_experts(graph[op.inputs[1]].shape, type),
                             of_experts(graph[op.outputs[0]].shape, NumberType::f32));
}

}  // namespace plimsoll::cpu_kernels
