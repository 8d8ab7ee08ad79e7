// Linear layers, forward and backward, and the product in an LSTM's backward.

#include <algorithm>
#include <memory>

#include "sim/core/op_attribute.h"
#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/cuda/narrow_kernels.h"
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
                             cudaDataType_t numbers, const Libraries& libraries) {
  return std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, n, n}, .b = {k, n, n, true}, .c = {rows, k, leading}, .numbers = numbers}, libraries);
}

/// The product of two of the op's inputs.
CudaKernel of_inputs(const SharedProduct& product, std::size_t first, std::size_t second) {
  return {[product, first, second](const KernelArguments& a, const Queue& queue) {
            product->run(a.inputs[first], a.inputs[second], a.outputs[0], nullptr, a.scratch, queue);
          },
          product->scratch()};
}

}  // namespace

/// y = x W + b; x (rows, k), W (k, n), b (n) or none.
CudaKernel linear(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]];
  const bool turned = attribute_of(op, transposed_attribute).has_value();
  const std::int64_t rows = rows_of(x), k = weight.shape[turned ? 1 : 0], n = weight.shape[turned ? 0 : 1];
  const bool has_bias = op.inputs.size() > 2;
  const auto product = std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, k, x.shape.back()},
                   .b = {weight.shape[0], weight.shape[1], weight.shape[1], turned},
                   .c = {rows, n, n},
                   .has_bias = has_bias,
                   .numbers = number_type(x)},
      libraries);
  return with_rounded_parameters(graph, op,
                                 {[product, has_bias](const KernelArguments& a, const Queue& queue) {
                                    product->run(a.inputs[0], a.inputs[1], a.outputs[0],
                                                 has_bias ? a.inputs[2] : nullptr, a.scratch, queue);
                                  },
                                  product->scratch()});
}

/// dx = dy W^T.
CudaKernel linear_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &dy = graph[op.inputs[0]], &weight = graph[op.inputs[1]];
  const std::int64_t rows = rows_of(dy), k = weight.shape[0], n = weight.shape[1];
  const ProductShape turned{.a = {rows, k, k}, .b = {k, n, n}, .c = {rows, n, n}, .numbers = number_type(dy)};
  const SharedProduct product = attribute_of(op, transposed_attribute)
                                    ? std::make_shared<const MatrixProduct>(turned, libraries)
                                    : input_gradient(rows, k, n, k, number_type(dy), libraries);
  return with_rounded_parameters(graph, op, of_inputs(product, 0, 1));
}

/// dW = x^T dy, db, if there is one, = column sums of dy, all in fp32. x may have more columns than W has rows: then
/// the first are meant.
CudaKernel linear_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.outputs[0]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  const bool turned = attribute_of(op, transposed_attribute).has_value();
  const auto product =
      std::make_shared<const MatrixProduct>(ProductShape{.a = {rows, k, turned ? k : x.shape.back(), true},
                                                         .b = {rows, n, n},
                                                         .c = {k, n, n},
                                                         .numbers = number_type(x),
                                                         .made = CUDA_R_32F},
                                            libraries);
  const CudaKernel kernel = turned ? of_inputs(product, 1, 0) : of_inputs(product, 0, 1);
  if (op.outputs.size() == 1) return kernel;
  return by_number(x, [=]<class Number>(Number) {
    return CudaKernel{[matrix = kernel.run, rows, n](const KernelArguments& a, const Queue& queue) {
                        matrix(a, queue);  // the scratch is free when the product is done
                        launch::column_sums(a.in_as<Number>(1), {rows, n}, a.scratch, a.out(1), queue.stream);
                      },
                      std::max(kernel.scratch, Bytes{launch::column_sums_scratch({rows, n})})};
  });
}

/// Hidden half: dgates W^T; cell half: what reaches the new cell, times the forget gate.
CudaKernel lstm_state_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const std::int64_t batch = graph[op.inputs[0]].shape[0], width = graph[op.inputs[0]].shape[1] / 4;
  const Tensor& dgates = graph[op.inputs[0]];
  const SharedProduct product = input_gradient(batch, width, 4 * width, 2 * width, number_type(dgates), libraries);
  const CudaKernel hidden = with_rounded_parameters(graph, op, of_inputs(product, 0, 1));
  return by_number(dgates, [=]<class Number>(Number) {
    return CudaKernel{[run = hidden.run, batch, width](const KernelArguments& a, const Queue& queue) {
                        run(a, queue);
                        launch::lstm_cell_half(a.in_as<Number>(2), a.in_as<Number>(3), a.in_as<Number>(4), batch, width,
                                               a.out_as<Number>(), queue.stream);
                      },
                      hidden.scratch};
  });
}

}  // namespace plimsoll::cuda_kernels
