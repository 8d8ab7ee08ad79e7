// Linear layers, forward and backward, and the product in an LSTM's backward.

#include <algorithm>
#include <memory>

#include "sim/core/op_attribute.h"
#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/networks/network.h"

namespace plimsoll::cuda_kernels {
namespace {

/// std::function wants to be copied, and a product owns library objects.
using SharedProduct = std::shared_ptr<const MatrixProduct>;

/// Rows of a tensor that may have more columns than are used; the leading dimension is all of them.
std::int64_t rows_of(const Tensor& tensor) {
  return row_sizes(tensor).rows;
}

/// dx = dy W^T; dx may lie in rows of `leading` numbers.
SharedProduct input_gradient(std::int64_t rows, std::int64_t k, std::int64_t n, std::int64_t leading,
                             const Libraries& libraries) {
  return std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, n, n}, .b = {k, n, n, true}, .c = {rows, k, leading}}, libraries);
}

}  // namespace

/// y = x W + b; x (rows, k), W (k, n), b (n) or none.
CudaKernel linear(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]];
  const bool turned = attribute_of(op, transposed_attribute).has_value();
  const std::int64_t rows = rows_of(x), k = weight.shape[turned ? 1 : 0], n = weight.shape[turned ? 0 : 1];
  const StoredMatrix of_weight{weight.shape[0], weight.shape[1], weight.shape[1], turned};
  const bool has_bias = op.inputs.size() > 2;
  const auto product = std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, k, x.shape.back()}, .b = of_weight, .c = {rows, n, n}, .has_bias = has_bias}, libraries);
  return {[product, has_bias](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(), has_bias ? a.in(2) : nullptr, a.scratch, queue);
          },
          product->scratch()};
}

/// dx = dy W^T.
CudaKernel linear_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor& weight = graph[op.inputs[1]];
  const std::int64_t rows = rows_of(graph[op.inputs[0]]), k = weight.shape[0], n = weight.shape[1];
  const SharedProduct product = attribute_of(op, transposed_attribute)
                                    ? std::make_shared<const MatrixProduct>(
                                          ProductShape{.a = {rows, k, k}, .b = {k, n, n}, .c = {rows, n, n}}, libraries)
                                    : input_gradient(rows, k, n, k, libraries);
  return {[product](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(), nullptr, a.scratch, queue);
          },
          product->scratch()};
}

/// dW = x^T dy, db, if there is one, = column sums of dy. x may have more columns than W has rows: then the first are
/// meant.
CudaKernel linear_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.outputs[0]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  if (attribute_of(op, transposed_attribute)) {
    const auto turned = std::make_shared<const MatrixProduct>(
        ProductShape{.a = {rows, k, k, true}, .b = {rows, n, n}, .c = {k, n, n}}, libraries);
    return {[turned](const KernelArguments& a, const Queue& queue) {
              turned->run(a.in(1), a.in(0), a.out(0), nullptr, a.scratch, queue);
            },
            turned->scratch()};
  }
  const auto product = std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, k, x.shape.back(), true}, .b = {rows, n, n}, .c = {k, n, n}}, libraries);
  if (op.outputs.size() == 1) {
    return {[product](const KernelArguments& a, const Queue& queue) {
              product->run(a.in(0), a.in(1), a.out(0), nullptr, a.scratch, queue);
            },
            product->scratch()};
  }
  return {[product, rows, n](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(0), nullptr, a.scratch, queue);
            launch::column_sums(a.in(1), {rows, n}, a.scratch, a.out(1), queue.stream);  // after the product is done
          },
          std::max(product->scratch(), Bytes{launch::column_sums_scratch({rows, n})})};
}

/// Hidden half: dgates W^T; cell half: what reaches the new cell, times the forget gate.
CudaKernel lstm_state_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const std::int64_t batch = graph[op.inputs[0]].shape[0], width = graph[op.inputs[0]].shape[1] / 4;
  const SharedProduct product = input_gradient(batch, width, 4 * width, 2 * width, libraries);
  return {[product, batch, width](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(), nullptr, a.scratch, queue);
            launch::lstm_cell_half(a.in(2), a.in(3), a.in(4), batch, width, a.out(), queue.stream);
          },
          product->scratch()};
}

}  // namespace plimsoll::cuda_kernels
