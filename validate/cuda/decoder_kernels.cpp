// What decoders as Llama's have beside attention and products: own kernels.

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/narrow_kernels.h"

namespace plimsoll::cuda_kernels {
namespace {

CudaKernel own_rotation(const Graph& graph, const Op& op, bool back) {
  const RotationSizes s(graph[op.inputs[0]], op);
  return by_number(graph[op.inputs[0]], [s, back]<class Number>(Number) {
    return CudaKernel{[s, back](const KernelArguments& a, const Queue& queue) {
                        launch::rotate(a.in_as<Number>(0), s, back, a.out_as<Number>(), queue.stream);
                      },
                      {}};
  });
}

}  // namespace

CudaKernel root_norm(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes s = row_sizes(graph[op.inputs[0]]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return CudaKernel{[s](const KernelArguments& a, const Queue& queue) {
                        launch::root_norm(a.in_as<Number>(0), a.in(1), s, a.out_as<Number>(), queue.stream);
                      },
                      {}};
  });
}

CudaKernel root_norm_input_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes s = row_sizes(graph[op.inputs[0]]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return CudaKernel{[s](const KernelArguments& a, const Queue& queue) {
                        launch::root_norm_input_gradient(a.in_as<Number>(0), a.in(1), a.in_as<Number>(2), s,
                                                         a.out_as<Number>(), queue.stream);
                      },
                      {}};
  });
}

CudaKernel root_norm_weight_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes s = row_sizes(graph[op.inputs[0]]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return CudaKernel{[s](const KernelArguments& a, const Queue& queue) {
                        launch::root_norm_weight_gradient(a.in_as<Number>(0), a.in_as<Number>(1), s, a.scratch, a.out(),
                                                          queue.stream);
                      },
                      Bytes{launch::root_norm_weight_scratch(s)}};
  });
}

CudaKernel rotation(const Graph& graph, const Op& op, const Libraries&) {
  return own_rotation(graph, op, false);
}

CudaKernel rotation_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return own_rotation(graph, op, true);
}

CudaKernel gated_silu(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = number_count(graph[op.inputs[0]])]<class Number>(Number) {
    return CudaKernel{[n](const KernelArguments& a, const Queue& queue) {
                        launch::gated_silu(a.in_as<Number>(0), a.in_as<Number>(1), a.out_as<Number>(), n, queue.stream);
                      },
                      {}};
  });
}

CudaKernel gated_silu_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = number_count(graph[op.inputs[0]])]<class Number>(Number) {
    return CudaKernel{[n](const KernelArguments& a, const Queue& queue) {
                        launch::gated_silu_gradient(a.in_as<Number>(0), a.in_as<Number>(1), a.in_as<Number>(2),
                                                    a.out_as<Number>(0), a.out_as<Number>(1), n, queue.stream);
                      },
                      {}};
  });
}

}  // namespace plimsoll::cuda_kernels
