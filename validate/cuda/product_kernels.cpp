// Linear layers, forward and backward, and the product in an LSTM's backward.

#include <algorithm>
#include <memory>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/cuda/narrow_kernels.h"
#include "validate/networks/narrow_values.h"
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

// Linear layers whose products are in fp8: both operands are rounded to 8 bits in the scratch, with a scale a tensor
// that stays on the device, so that the host waits for nothing. cuBLASLt multiplies such numbers only as rows of the
// first by rows of the second: what lies otherwise is turned when it is rounded.
namespace plimsoll::cuda_kernels {
namespace {

struct RoundedOperand {
  std::size_t input;
  RowSizes sizes;  ///< as they lie in the op's input
  bool turned;
  In8Bits form;
  bool is_narrow;  ///< bf16, else fp32
  Bytes codes, scaling;

  RoundedOperand(const Graph& graph, const Op& op, std::size_t i, bool turns, Bytes& scratch)
      : input(i),
        sizes(row_sizes(graph[op.inputs[i]])),
        turned(turns),
        form(*rounded_operand(op, i)),
        is_narrow(is_bf16(graph[op.inputs[i]])),
        codes(scratch),
        scaling(codes + aligned(Bytes{sizes.rows * sizes.columns})) {
    scratch = scaling + aligned(Bytes{launch::scaling_scratch()});
  }

  /// As the product takes it.
  StoredMatrix matrix() const {
    const std::int64_t rows = turned ? sizes.columns : sizes.rows, columns = turned ? sizes.rows : sizes.columns;
    return {rows, columns, columns};
  }
  cudaDataType_t type() const { return form == In8Bits::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }
  void* codes_in(const KernelArguments& a) const { return static_cast<std::byte*>(a.scratch) + codes.count; }
  float* scaling_in(const KernelArguments& a) const {
    return static_cast<float*>(static_cast<void*>(static_cast<std::byte*>(a.scratch) + scaling.count));
  }

  void round(const KernelArguments& a, cudaStream_t stream) const {
    if (form == In8Bits::e5m2) return round_to<Bf16, E5m2>(a, stream);
    is_narrow ? round_to<Bf16, E4m3>(a, stream) : round_to<float, E4m3>(a, stream);
  }

 private:
  template <class Number, class Eight>
  void round_to(const KernelArguments& a, cudaStream_t stream) const {
    launch::scale_to_8_bits(a.in_as<Number>(input), sizes, turned, scaling_in(a), static_cast<Eight*>(codes_in(a)),
                            stream);
  }
};

}  // namespace

CudaKernel product_in_fp8(const Graph& graph, const Op& op, const Libraries& libraries) {
  const OpKind kind = *network_kind(op.kind);
  const bool is_of_weight = kind == OpKind::linear_weight_gradient;
  Bytes scratch;
  const RoundedOperand first(graph, op, 0, is_of_weight, scratch),
      second(graph, op, 1, kind != OpKind::linear_input_gradient, scratch);
  const bool has_bias = kind == OpKind::linear && op.inputs.size() > 2;
  const Bytes bias = scratch;
  const std::int64_t results = second.matrix().rows;
  if (has_bias) scratch += aligned(Bytes{2 * results});
  StoredMatrix turned = second.matrix();
  turned.transposed = true;
  const auto product =
      std::make_shared<const MatrixProduct>(ProductShape{.a = first.matrix(),
                                                         .b = turned,
                                                         .c = {first.matrix().rows, results, results},
                                                         .has_bias = has_bias,
                                                         .numbers = first.type(),
                                                         .of_b = second.type(),
                                                         .made = is_of_weight ? CUDA_R_32F : CUDA_R_16BF},
                                            libraries);
  const bool has_bias_gradient = op.outputs.size() > 1;
  const Bytes sums{has_bias_gradient ? launch::column_sums_scratch(second.sizes) : 0};
  return {[=](const KernelArguments& a, const Queue& queue) {
            first.round(a, queue.stream);
            second.round(a, queue.stream);
            auto* rounded_bias =
                static_cast<Bf16*>(static_cast<void*>(static_cast<std::byte*>(a.scratch) + bias.count));
            if (has_bias) launch::narrow(a.in(2), results, rounded_bias, queue.stream);
            product->run_scaled({first.codes_in(a), first.scaling_in(a)}, {second.codes_in(a), second.scaling_in(a)},
                                a.outputs[0], has_bias ? rounded_bias : nullptr,
                                static_cast<std::byte*>(a.scratch) + scratch.count, queue);
            if (!has_bias_gradient) return;  // the scratch is free now
            launch::column_sums(a.in_as<Bf16>(1), second.sizes, a.scratch, a.out(1), queue.stream);
          },
          std::max(scratch + product->scratch(), sums)};
}

}  // namespace plimsoll::cuda_kernels
