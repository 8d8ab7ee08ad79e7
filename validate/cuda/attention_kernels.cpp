// Attention, forward and backward: qkv is (batch, sequence, heads x 3 x size), everything else (batch, heads, sequence,
// ...).

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/cuda/narrow_kernels.h"
#include "validate/networks/packing.h"

namespace plimsoll::cuda_kernels {
namespace {

struct Attention : AttentionSizes {
  cudaDataType_t numbers;

  Attention(const Tensor& qkv, const Op& op) : AttentionSizes(qkv, op), numbers(number_type(qkv)) {}
  std::int64_t each() const { return numbers == CUDA_R_16BF ? 2 : 4; }  ///< bytes of a number
};

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
      : a_(first),
        b_(second),
        c_(result),
        is_narrow_(s.numbers == CUDA_R_16BF),
        gathered_(aligned(Bytes{s.each() * s.batch * s.heads * s.sequence * s.size})) {
    const auto stored = [&s](const HeadMatrices& m) {
      const std::int64_t columns = m.rows ? s.size : s.sequence, numbers = s.sequence * columns;
      return StoredMatrix{s.sequence,   columns, columns,
                          m.transposed, numbers, std::gcd(std::int64_t{alignment}, s.each() * numbers)};
    };
    const ProductShape shape{.a = stored(a_),
                             .b = stored(b_),
                             .c = stored(c_),
                             .batch = s.batch * s.heads,
                             .alpha = alpha,
                             .numbers = s.numbers};
    product_ = std::make_shared<const MatrixProduct>(shape, libraries);
  }

  /// No product has more than two matrices that are rows.
  Bytes scratch() const { return 2 * gathered_ + product_->scratch(); }

  void run(const KernelArguments& arguments, const Queue& queue) const {
    is_narrow_ ? run_of<Bf16>(arguments, queue) : run_of<float>(arguments, queue);
  }

 private:
  template <class Number>
  void run_of(const KernelArguments& arguments, const Queue& queue) const {
    auto* free = static_cast<std::byte*>(arguments.scratch);
    const auto room = [&] { return reinterpret_cast<Number*>(std::exchange(free, free + gathered_.count)); };
    const auto gathered = [&](const HeadMatrices& m) {
      const auto* lies = arguments.in_as<Number>(m.tensor);
      if (!m.rows) return lies;
      Number* heads = room();
      launch::gather_heads(lies, *m.rows, heads, queue.stream);
      return static_cast<const Number*>(heads);
    };
    const Number *a = gathered(a_), *b = gathered(b_);
    Number* c = c_.rows ? room() : arguments.out_as<Number>(c_.tensor);
    product_->run(a, b, c, nullptr, static_cast<std::byte*>(arguments.scratch) + 2 * gathered_.count, queue);
    if (c_.rows) launch::scatter_heads(c, *c_.rows, arguments.out_as<Number>(c_.tensor), queue.stream);
  }

  HeadMatrices a_, b_, c_;
  bool is_narrow_;
  Bytes gathered_;                                ///< rows of heads, one head behind the other
  std::shared_ptr<const MatrixProduct> product_;  // std::function wants to be copied
};

CudaKernel products(const std::vector<HeadProduct>& all) {
  CudaKernel kernel;
  for (const HeadProduct& each : all) kernel.scratch = std::max(kernel.scratch, each.scratch());
  kernel.run = [all](const KernelArguments& arguments, const Queue& queue) {
    for (const HeadProduct& each : all) each.run(arguments, queue);
  };
  return kernel;
}

}  // namespace

/// scores = q k^T / sqrt(size), minus infinity for keys behind the query.
CudaKernel attention_scores(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[0]], op);
  const HeadMatrices query = rows_in(s, 0, 3 * s.width), key = rows_in(s, 0, 3 * s.width, s.size);
  const CudaKernel kernel = products({{s, query, transposed(key), squares_in(0), s.scale(), libraries}});
  return by_number(graph[op.outputs[0]], [kernel, s]<class Number>(Number) {
    return CudaKernel{[all = kernel.run, s](const KernelArguments& a, const Queue& queue) {
                        all(a, queue);
                        launch::mask_scores(a.out_as<Number>(), s.batch * s.heads * s.sequence, s.sequence,
                                            queue.stream);
                      },
                      kernel.scratch};
  });
}

/// mixed = weights v, heads side by side.
CudaKernel attention_values(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[1]], op);
  const HeadMatrices value = rows_in(s, 1, 3 * s.width, 2 * s.size);
  return products({{s, squares_in(0), value, rows_in(s, 0, s.width), 1, libraries}});
}

/// Of the weights: dmixed v^T.
CudaKernel attention_values_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[1]], op);
  const HeadMatrices value = rows_in(s, 1, 3 * s.width, 2 * s.size);
  return products({{s, rows_in(s, 0, s.width), transposed(value), squares_in(0), 1, libraries}});
}

/// dq = dscores k / sqrt(size), dk = dscores^T q / sqrt(size), dv = weights^T dmixed.
CudaKernel attention_qkv_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Attention s(graph[op.inputs[3]], op);
  const std::int64_t wide = 3 * s.width;
  const HeadMatrices dscores = squares_in(0), weights = squares_in(1);
  return products({{s, dscores, rows_in(s, 3, wide, s.size), rows_in(s, 0, wide), s.scale(), libraries},
                   {s, transposed(dscores), rows_in(s, 3, wide), rows_in(s, 0, wide, s.size), s.scale(), libraries},
                   {s, transposed(weights), rows_in(s, 2, s.width), rows_in(s, 0, wide, 2 * s.size), 1, libraries}});
}

}  // namespace plimsoll::cuda_kernels
