// What decoders as Llama's have beside attention and products: own kernels.

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"

namespace plimsoll::cuda_kernels {
namespace {

CudaKernel own_rotation(const Graph& graph, const Op& op, bool back) {
  return {[s = RotationSizes(graph[op.inputs[0]], op), back](const KernelArguments& a, const Queue& queue) {
            launch::rotate(a.in(0), s, back, a.out(), queue.stream);
          },
          {}};
}

}  // namespace

CudaKernel root_norm(const Graph& graph, const Op& op, const Libraries&) {
  return {[s = row_sizes(graph[op.inputs[0]])](const KernelArguments& a, const Queue& queue) {
            launch::root_norm(a.in(0), a.in(1), s, a.out(), queue.stream);
          },
          {}};
}

CudaKernel root_norm_input_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return {[s = row_sizes(graph[op.inputs[0]])](const KernelArguments& a, const Queue& queue) {
            launch::root_norm_input_gradient(a.in(0), a.in(1), a.in(2), s, a.out(), queue.stream);
          },
          {}};
}

CudaKernel root_norm_weight_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes s = row_sizes(graph[op.inputs[0]]);
  return {[s](const KernelArguments& a, const Queue& queue) {
            launch::root_norm_weight_gradient(a.in(0), a.in(1), s, a.scratch, a.out(), queue.stream);
          },
          Bytes{launch::root_norm_weight_scratch(s)}};
}

CudaKernel rotation(const Graph& graph, const Op& op, const Libraries&) {
  return own_rotation(graph, op, false);
}

CudaKernel rotation_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return own_rotation(graph, op, true);
}

CudaKernel gated_silu(const Graph& graph, const Op& op, const Libraries&) {
  return {[n = graph[op.inputs[0]].bytes.count / 4](const KernelArguments& a, const Queue& queue) {
            launch::gated_silu(a.in(0), a.in(1), a.out(), n, queue.stream);
          },
          {}};
}

CudaKernel gated_silu_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return {[n = graph[op.inputs[0]].bytes.count / 4](const KernelArguments& a, const Queue& queue) {
            launch::gated_silu_gradient(a.in(0), a.in(1), a.in(2), a.out(0), a.out(1), n, queue.stream);
          },
          {}};
}

}  // namespace plimsoll::cuda_kernels
