// Linear layers, forward and backward.

#include "sim/core/op_attribute.h"
#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/networks/network.h"
#include "validate/reference/elementwise.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::memory;

std::int64_t rows_of(const Tensor& tensor) {
  return row_sizes(tensor).rows;
}

Kernel product(const memory::desc& a, const memory::desc& b, const memory::desc& c, std::size_t first,
               std::size_t second, const dnnl::primitive_attr& attributes = own_scratch()) {
  const auto desc = layer<dnnl::matmul>(attributes, a, b, c);
  return bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, a, false, first}, {DNNL_ARG_WEIGHTS, b, false, second}, {DNNL_ARG_DST, c, true}});
}

/// (k, n); a transposed weight's first dimension is its results.
struct WeightSizes {
  bool transposed;
  std::int64_t k, n;

  WeightSizes(const Op& op, const Tensor& weight)
      : transposed(attribute_of(op, transposed_attribute).has_value()),
        k(weight.shape[transposed ? 1 : 0]),
        n(weight.shape[transposed ? 0 : 1]) {}

  /// As (k, n), however it is stored.
  memory::desc weight() const { return transposed ? strided({k, n}, {1, k}) : dense({k, n}); }
};

}  // namespace

/// y = x W + b; x (rows, k), W (k, n), b (n) or none.
Kernel linear(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const WeightSizes of(op, graph[op.inputs[1]]);
  const std::int64_t rows = rows_of(x), k = of.k, n = of.n;
  const memory::desc from = strided({rows, k}, {x.shape.back(), 1}), bias = dense({1, n}), to = dense({rows, n});
  if (op.inputs.size() == 2) return product(from, of.weight(), to, 0, 1);
  const auto desc = layer<dnnl::matmul>(own_scratch(), from, dense({k, n}), bias, to);
  return bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, from, false, 0},
                       {DNNL_ARG_WEIGHTS, dense({k, n}), false, 1},
                       {DNNL_ARG_BIAS, bias, false, 2},
                       {DNNL_ARG_DST, to, true, 0}});
}

/// dx = dy W^T.
Kernel linear_input_gradient(const Graph& graph, const Op& op) {
  const WeightSizes of(op, graph[op.inputs[1]]);
  const std::int64_t rows = rows_of(graph[op.inputs[0]]), k = of.k, n = of.n;
  const memory::desc turned = of.transposed ? dense({n, k}) : strided({n, k}, {1, n});
  return product(dense({rows, n}), turned, dense({rows, k}), 0, 1);
}

/// dW = x^T dy, db, if there is one, = column sums of dy. x may have more columns than W has rows: then the first are
/// meant.
Kernel linear_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const WeightSizes of(op, graph[op.outputs[0]]);
  const std::int64_t rows = rows_of(x), k = of.k, n = of.n;
  if (of.transposed) return product(strided({n, rows}, {1, n}), dense({rows, k}), dense({n, k}), 1, 0);
  Kernel kernel = product(strided({k, rows}, {1, x.shape.back()}), dense({rows, n}), dense({k, n}), 0, 1);
  if (op.outputs.size() == 1) return kernel;
  kernel.run = [matrix = kernel.run, rows, n](const KernelArguments& a) {
    matrix(a);
    plain::column_sums(a.in(1), rows, n, a.out(1));
  };
  return kernel;
}

}  // namespace plimsoll::cpu_kernels
