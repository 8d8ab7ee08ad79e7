// Matrix products: linear layers and attention, forward and backward.

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/networks/packing.h"

namespace plimsoll {
namespace {

/// std::function wants to be copied, and a product owns library objects.
using SharedProduct = std::shared_ptr<const MatrixProduct>;

/// Rows of a tensor that may have more columns than are used; the leading dimension is all of them.
std::int64_t rows_of(const Tensor& tensor) {
  return row_sizes(tensor).rows;
}

/// y = x W + b; x (rows, k), W (k, n), b (n).
CudaKernel linear(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  const auto product = std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, k, x.shape.back()}, .b = {k, n, n}, .c = {rows, n, n}, .has_bias = true}, libraries);
  return {[product](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(), a.in(2), a.scratch, queue);
          },
          product->scratch()};
}

/// dx = dy W^T; dx may lie in rows of `leading` numbers.
SharedProduct input_gradient(std::int64_t rows, std::int64_t k, std::int64_t n, std::int64_t leading,
                             const Libraries& libraries) {
  return std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, n, n}, .b = {k, n, n, true}, .c = {rows, k, leading}}, libraries);
}

CudaKernel linear_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor& weight = graph[op.inputs[1]];
  const std::int64_t k = weight.shape[0], n = weight.shape[1];
  const SharedProduct product = input_gradient(rows_of(graph[op.inputs[0]]), k, n, k, libraries);
  return {[product](const KernelArguments& a, const Queue& queue) {
            product->run(a.in(0), a.in(1), a.out(), nullptr, a.scratch, queue);
          },
          product->scratch()};
}

/// dW = x^T dy, db = column sums of dy. x may have more columns than W has rows: then the first are meant.
CudaKernel linear_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.outputs[0]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  const auto product = std::make_shared<const MatrixProduct>(
      ProductShape{.a = {rows, k, x.shape.back(), true}, .b = {rows, n, n}, .c = {k, n, n}}, libraries);
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

// --- attention: qkv is (batch, sequence, 3 x heads x size), everything else (batch, heads, sequence, ...)

using Attention = AttentionSizes;

/// A matrix for every picture of the batch and every head, in one of the op's tensors. A square lies behind the other;
/// rows of heads lie side by side, which no one stride describes.
struct HeadMatrices {
  std::size_t tensor = 0;
  std::optional<HeadRows> rows;  ///< unset: a square, sequence x sequence
  bool transposed = false;
};

/// Query, key or value, or what has their shape, in rows of `leading` numbers.
HeadMatrices rows_in(const Attention& s, std::size_t tensor, std::int64_t leading, std::int64_t offset = 0) {
  return {tensor, HeadRows{s.batch, s.sequence, s.heads, s.size, leading, offset}};
}

HeadMatrices squares_in(std::size_t tensor) {
  return {tensor, std::nullopt};
}

HeadMatrices transposed(HeadMatrices m) {
  m.transposed = true;
  return m;
}

/// One strided batch over batch and heads: rows of heads are gathered in the scratch first, and scattered from there.
class HeadProduct {
 public:
  HeadProduct(const Attention& s, const HeadMatrices& first, const HeadMatrices& second, const HeadMatrices& result,
              float alpha, const Libraries& libraries)
      : a_(first), b_(second), c_(result), gathered_(aligned(Bytes{4 * s.batch * s.heads * s.sequence * s.size})) {
    const auto stored = [&s](const HeadMatrices& m) {
      const std::int64_t columns = m.rows ? s.size : s.sequence, numbers = s.sequence * columns;
      return StoredMatrix{s.sequence,   columns, columns,
                          m.transposed, numbers, std::gcd(std::int64_t{alignment}, 4 * numbers)};
    };
    const ProductShape shape{stored(a_), stored(b_), stored(c_), s.batch * s.heads, alpha, false};
    product_ = std::make_shared<const MatrixProduct>(shape, libraries);
  }

  /// No product has more than two matrices that are rows.
  Bytes scratch() const { return 2 * gathered_ + product_->scratch(); }

  void run(const KernelArguments& arguments, const Queue& queue) const {
    auto* free = static_cast<std::byte*>(arguments.scratch);
    const auto room = [&] { return reinterpret_cast<float*>(std::exchange(free, free + gathered_.count)); };
    const auto gathered = [&](const HeadMatrices& m) {
      const float* lies = arguments.in(m.tensor);
      if (!m.rows) return lies;
      float* heads = room();
      launch::gather_heads(lies, *m.rows, heads, queue.stream);
      return static_cast<const float*>(heads);
    };
    const float *a = gathered(a_), *b = gathered(b_);
    float* c = c_.rows ? room() : arguments.out(c_.tensor);
    product_->run(a, b, c, nullptr, static_cast<std::byte*>(arguments.scratch) + 2 * gathered_.count, queue);
    if (c_.rows) launch::scatter_heads(c, *c_.rows, arguments.out(c_.tensor), queue.stream);
  }

 private:
  HeadMatrices a_, b_, c_;
  Bytes gathered_;  ///< rows of heads, one head behind the other
  SharedProduct product_;
};

CudaKernel products(const std::vector<HeadProduct>& all) {
  CudaKernel kernel;
  for (const HeadProduct& each : all) kernel.scratch = std::max(kernel.scratch, each.scratch());
  kernel.run = [all](const KernelArguments& arguments, const Queue& queue) {
    for (const HeadProduct& each : all) each.run(arguments, queue);
  };
  return kernel;
}

/// scores = q k^T / sqrt(size), minus infinity for keys behind the query.
CudaKernel attention_scores(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[0]], op);
  const HeadMatrices query = rows_in(s, 0, 3 * s.width), key = rows_in(s, 0, 3 * s.width, s.width);
  CudaKernel kernel = products({{s, query, transposed(key), squares_in(0), s.scale(), libraries}});
  kernel.run = [all = kernel.run, s](const KernelArguments& a, const Queue& queue) {
    all(a, queue);
    launch::mask_scores(a.out(), s.batch * s.heads * s.sequence, s.sequence, queue.stream);
  };
  return kernel;
}

/// mixed = weights v, heads side by side.
CudaKernel attention_values(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[1]], op);
  const HeadMatrices value = rows_in(s, 1, 3 * s.width, 2 * s.width);
  return products({{s, squares_in(0), value, rows_in(s, 0, s.width), 1, libraries}});
}

/// Of the weights: dmixed v^T.
CudaKernel attention_values_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[1]], op);
  const HeadMatrices value = rows_in(s, 1, 3 * s.width, 2 * s.width);
  return products({{s, rows_in(s, 0, s.width), transposed(value), squares_in(0), 1, libraries}});
}

/// dq = dscores k / sqrt(size), dk = dscores^T q / sqrt(size), dv = weights^T dmixed.
CudaKernel attention_qkv_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[3]], op);
  const std::int64_t wide = 3 * s.width;
  const HeadMatrices dscores = squares_in(0), weights = squares_in(1);
  return products({{s, dscores, rows_in(s, 3, wide, s.width), rows_in(s, 0, wide), s.scale(), libraries},
                   {s, transposed(dscores), rows_in(s, 3, wide), rows_in(s, 0, wide, s.width), s.scale(), libraries},
                   {s, transposed(weights), rows_in(s, 2, s.width), rows_in(s, 0, wide, 2 * s.width), 1, libraries}});
}

}  // namespace

std::optional<CudaKernel> cuda_product_kernel(const Graph& graph, const Op& op, const Libraries& libraries) {
  if (op.kind == "linear" || op.kind == "lstm_gates") return linear(graph, op, libraries);
  if (op.kind == "linear_input_gradient") return linear_input_gradient(graph, op, libraries);
  if (op.kind == "linear_weight_gradient" || op.kind == "lstm_weight_gradient") {
    return linear_weight_gradient(graph, op, libraries);
  }
  if (op.kind == "lstm_state_gradient") return lstm_state_gradient(graph, op, libraries);
  if (op.kind == "attention_scores") return attention_scores(graph, op, libraries);
  if (op.kind == "attention_values") return attention_values(graph, op, libraries);
  if (op.kind == "attention_values_gradient") return attention_values_gradient(graph, op, libraries);
  if (op.kind == "attention_qkv_gradient") return attention_qkv_gradient(graph, op, libraries);
  return std::nullopt;
}

}  // namespace plimsoll
