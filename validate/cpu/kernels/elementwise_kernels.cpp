// ReLU, GELU, softmax and sums.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/reference/elementwise.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::algorithm;
using dnnl::memory;

/// As one row, whatever the shape.
memory::desc flat(const Tensor& tensor) {
  return dense({number_count(tensor)}, type_of(tensor));
}

memory::desc rows(const Tensor& tensor) {
  const RowSizes s = row_sizes(tensor);
  return dense({s.rows, s.columns}, type_of(tensor));
}

Kernel elementwise(const Graph& graph, const Op& op, algorithm kind) {
  const memory::desc all = flat(graph[op.inputs[0]]);
  const auto desc = eltwise_layer(all, kind);
  return bound_kernel(dnnl::eltwise_forward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, all, false, 0}, {DNNL_ARG_DST, all, true, 0}});
}

/// `data` is the oneDNN argument that the first input is: the layer's input or its output.
Kernel elementwise_gradient(const Graph& graph, const Op& op, algorithm kind, int data) {
  const memory::desc all = flat(graph[op.inputs[0]]);
  const auto desc = eltwise_gradient_layer(all, kind);
  return bound_kernel(dnnl::eltwise_backward(desc), desc.scratchpad_desc(),
                      {{data, all, false, 0}, {DNNL_ARG_DIFF_DST, all, false, 1}, {DNNL_ARG_DIFF_SRC, all, true, 0}});
}

constexpr algorithm relu_algorithm = algorithm::eltwise_relu_use_dst_for_bwd,
                    gelu_algorithm = algorithm::eltwise_gelu_erf;

}  // namespace

Kernel relu(const Graph& graph, const Op& op) {
  return elementwise(graph, op, relu_algorithm);
}

Kernel relu_gradient(const Graph& graph, const Op& op) {
  return elementwise_gradient(graph, op, relu_algorithm, DNNL_ARG_DST);
}

Kernel gelu(const Graph& graph, const Op& op) {
  return elementwise(graph, op, gelu_algorithm);
}

Kernel gelu_gradient(const Graph& graph, const Op& op) {
  return elementwise_gradient(graph, op, gelu_algorithm, DNNL_ARG_SRC);
}

Kernel softmax(const Graph& graph, const Op& op) {
  if (is_bf16(graph[op.inputs[0]]) && !is_bf16(graph[op.outputs[0]])) return cross_entropy(graph, op);
  const memory::desc all = rows(graph[op.inputs[0]]);
  const auto desc = softmax_layer(all);
  return bound_kernel(dnnl::softmax_forward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, all, false, 0}, {DNNL_ARG_DST, all, true, 0}});
}

/// Probabilities are fp32, of logits of bf16 too: those are widened where the result goes, and it is made in place.
Kernel cross_entropy(const Graph& graph, const Op& op) {
  if (!is_bf16(graph[op.inputs[0]])) return softmax(graph, op);
  const memory::desc all = rows(graph[op.outputs[0]]);
  const auto desc = softmax_layer(all);
  Kernel kernel = bound_kernel(dnnl::softmax_forward(desc), desc.scratchpad_desc(),
                               {{DNNL_ARG_SRC, all, true, 0}, {DNNL_ARG_DST, all, true, 0}});
  kernel.run = [in_place = kernel.run, n = number_count(graph[op.inputs[0]])](const KernelArguments& a) {
    plain::widen(a.in_as<Bf16>(0), n, a.out());
    in_place(a);
  };
  return kernel;
}

Kernel softmax_gradient(const Graph& graph, const Op& op) {
  const memory::desc all = rows(graph[op.inputs[0]]);
  const auto desc = softmax_gradient_layer(all);
  return bound_kernel(
      dnnl::softmax_backward(desc), desc.scratchpad_desc(),
      {{DNNL_ARG_DST, all, false, 0}, {DNNL_ARG_DIFF_DST, all, false, 1}, {DNNL_ARG_DIFF_SRC, all, true, 0}});
}

Kernel add(const Graph& graph, const Op& op) {
  const memory::desc all = flat(graph[op.inputs[0]]);
  const auto desc = layer<dnnl::binary>(own_scratch(), algorithm::binary_add, all, all, all);
  return bound_kernel(dnnl::binary(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC_0, all, false, 0}, {DNNL_ARG_SRC_1, all, false, 1}, {DNNL_ARG_DST, all, true, 0}});
}

}  // namespace plimsoll::cpu_kernels
