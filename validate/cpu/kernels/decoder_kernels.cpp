// What decoders as Llama's have beside attention and products, as plain loops.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/reference/decoder_layers.h"

namespace plimsoll::cpu_kernels {
namespace {

Kernel rotation_kernel(const Graph& graph, const Op& op, bool back) {
  return {[s = RotationSizes(graph[op.inputs[0]], op), back](const KernelArguments& a) {
            plain::rotate(a.in(0), s, back, a.out());
          },
          {}};
}

}  // namespace

Kernel root_norm(const Graph& graph, const Op& op) {
  return {[s = row_sizes(graph[op.inputs[0]])](const KernelArguments& a) {
            plain::root_norm(a.in(0), a.in(1), s, a.out());
          },
          {}};
}

Kernel root_norm_input_gradient(const Graph& graph, const Op& op) {
  return {[s = row_sizes(graph[op.inputs[0]])](const KernelArguments& a) {
            plain::root_norm_input_gradient(a.in(0), a.in(1), a.in(2), s, a.out());
          },
          {}};
}

Kernel root_norm_weight_gradient(const Graph& graph, const Op& op) {
  return {[s = row_sizes(graph[op.inputs[0]])](const KernelArguments& a) {
            plain::root_norm_weight_gradient(a.in(0), a.in(1), s, a.out());
          },
          {}};
}

Kernel rotation(const Graph& graph, const Op& op) {
  return rotation_kernel(graph, op, false);
}

Kernel rotation_gradient(const Graph& graph, const Op& op) {
  return rotation_kernel(graph, op, true);
}

Kernel gated_silu(const Graph& graph, const Op& op) {
  return {[n = graph[op.inputs[0]].bytes.count / 4](const KernelArguments& a) {
            plain::gated_silu(a.in(0), a.in(1), a.out(), n);
          },
          {}};
}

Kernel gated_silu_gradient(const Graph& graph, const Op& op) {
  return {[n = graph[op.inputs[0]].bytes.count / 4](const KernelArguments& a) {
            plain::gated_silu_gradient(a.in(0), a.in(1), a.in(2), a.out(0), a.out(1), n);
          },
          {}};
}

}  // namespace plimsoll::cpu_kernels
