// One step of a long short-term memory (validate/reference/layers.h); its product is oneDNN's.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/reference/layers.h"

namespace plimsoll::cpu_kernels {
namespace {

struct CellSizes {
  std::int64_t batch, width;
  explicit CellSizes(const Tensor& gates) : batch(gates.shape[0]), width(gates.shape[1] / 4) {}
};

}  // namespace

Kernel lstm_cell(const Graph& graph, const Op& op) {
  const CellSizes s(graph[op.inputs[0]]);
  return {[s](const KernelArguments& a) { plain::lstm_cell(a.in(0), a.in(1), s.batch, s.width, a.out()); }, {}};
}

/// inputs: gradient of the next state, gates, state.
Kernel lstm_cell_gradient(const Graph& graph, const Op& op) {
  const CellSizes s(graph[op.inputs[1]]);
  return {[s](const KernelArguments& a) {
            plain::lstm_cell_gradient(a.in(0), a.in(1), a.in(2), s.batch, s.width, a.out());
          },
          {}};
}

/// inputs: gradient of the gates, weight, gradient of the next state, gates, state. Hidden half: dgates W^T.
Kernel lstm_state_gradient(const Graph& graph, const Op& op) {
  const CellSizes s(graph[op.inputs[0]]);
  const dnnl::memory::desc from = dense({s.batch, 4 * s.width}),
                           weight = strided({4 * s.width, s.width}, {1, 4 * s.width}),
                           to = strided({s.batch, s.width}, {2 * s.width, 1});
  const auto desc = layer<dnnl::matmul>(own_scratch(), from, weight, to);
  Kernel kernel =
      bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                   {{DNNL_ARG_SRC, from, false, 0}, {DNNL_ARG_WEIGHTS, weight, false, 1}, {DNNL_ARG_DST, to, true, 0}});
  kernel.run = [product = kernel.run, s](const KernelArguments& a) {
    product(a);
    plain::lstm_cell_half(a.in(2), a.in(3), a.in(4), s.batch, s.width, a.out());
  };
  return kernel;
}

}  // namespace plimsoll::cpu_kernels
