// Linear layers, forward and backward.

#include <vector>

#include "sim/core/op_attribute.h"
#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/networks/network.h"
#include "validate/networks/packing.h"
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
  memory::desc weight(NumberType type) const {
    return transposed ? strided({k, n}, {1, k}, type) : dense({k, n}, type);
  }
};

}  // namespace

Kernel with_parameters_as(NumberType type, const Graph& graph, const Op& op, Kernel kernel) {
  if (type == NumberType::f32) return kernel;
  std::vector<std::int64_t> numbers;
  Bytes rounded;
  for (std::size_t i = 1; i < op.inputs.size(); ++i) {
    numbers.push_back(number_count(graph[op.inputs[i]]));
    rounded += aligned(Bytes{2 * numbers.back()});
  }
  return {[product = kernel.run, numbers](const KernelArguments& a) {
            KernelArguments given = a;
            for (std::size_t i = 0; i < numbers.size(); ++i) {
              plain::narrow(a.in(i + 1), numbers[i], static_cast<Bf16*>(given.scratch));
              given.inputs[i + 1] = given.scratch;
              given.scratch = static_cast<std::byte*>(given.scratch) + aligned(Bytes{2 * numbers[i]}).count;
            }
            product(given);
          },
          rounded + kernel.scratch};
}

/// y = x W + b; x (rows, k), W (k, n), b (n) or none.
Kernel linear(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const WeightSizes of(op, graph[op.inputs[1]]);
  const std::int64_t rows = rows_of(x), k = of.k, n = of.n;
  const NumberType type = type_of(x);
  const memory::desc from = strided({rows, k}, {x.shape.back(), 1}, type), factor = dense({k, n}, type),
                     bias = dense({1, n}, type), to = dense({rows, n}, type);
  if (op.inputs.size() == 2) return with_parameters_as(type, graph, op, product(from, of.weight(type), to, 0, 1));
  const auto desc = layer<dnnl::matmul>(own_scratch(), from, factor, bias, to);
  return with_parameters_as(type, graph, op,
                            bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                                         {{DNNL_ARG_SRC, from, false, 0},
                                          {DNNL_ARG_WEIGHTS, factor, false, 1},
                                          {DNNL_ARG_BIAS, bias, false, 2},
                                          {DNNL_ARG_DST, to, true, 0}}));
}

/// dx = dy W^T.
Kernel linear_input_gradient(const Graph& graph, const Op& op) {
  const WeightSizes of(op, graph[op.inputs[1]]);
  const std::int64_t rows = rows_of(graph[op.inputs[0]]), k = of.k, n = of.n;
  const NumberType type = type_of(graph[op.inputs[0]]);
  const memory::desc turned = of.transposed ? dense({n, k}, type) : strided({n, k}, {1, n}, type);
  return with_parameters_as(type, graph, op, product(dense({rows, n}, type), turned, dense({rows, k}, type), 0, 1));
}

/// dW = x^T dy, db, if there is one, = column sums of dy. x may have more columns than W has rows: then the first are
/// meant.
Kernel linear_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const WeightSizes of(op, graph[op.outputs[0]]);
  const std::int64_t rows = rows_of(x), k = of.k, n = of.n;
  const NumberType type = type_of(x);
  if (of.transposed) return product(strided({n, rows}, {1, n}, type), dense({rows, k}, type), dense({n, k}), 1, 0);
  Kernel kernel = product(strided({k, rows}, {1, x.shape.back()}, type), dense({rows, n}, type), dense({k, n}), 0, 1);
  if (op.outputs.size() == 1) return kernel;
  kernel.run = [matrix = kernel.run, rows, n, type](const KernelArguments& a) {
    matrix(a);
    if (type == NumberType::bf16) return plain::column_sums(a.in_as<Bf16>(1), rows, n, a.out(1));
    plain::column_sums(a.in(1), rows, n, a.out(1));
  };
  return kernel;
}

}  // namespace plimsoll::cpu_kernels
