#include "sim/core/gpu_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "sim/core/op_kind.h"
#include "sim/core/optimizer.h"

namespace plimsoll {
namespace {

/// As platforms write it: `fp32` where 32 bits are no tf32 of the trace.
std::string written_dtype(const Graph& graph, const Tensor& tensor) {
  const std::string& dtype = dtype_of(graph, tensor);
  if (dtype == "bfloat16") return "bf16";
  if (dtype == "float16" || dtype == "half") return "fp16";
  if (dtype == "float32" || dtype == "float" || dtype == "fp32") return graph.source.dtype == "tf32" ? "tf32" : "fp32";
  return dtype;
}

double numbers_in(const Tensor& tensor) {
  double numbers = tensor.shape.empty() ? 0 : 1;
  for (const std::int64_t length : tensor.shape) numbers *= static_cast<double>(length);
  return numbers;
}

/// The two inputs with the most numbers, in the op's order; a bias is a third.
std::vector<const Tensor*> operands(const Graph& graph, const Op& op) {
  std::vector<const Tensor*> largest;
  for (const TensorId input : op.inputs) largest.push_back(&graph[input]);
  while (largest.size() > 2) {
    const auto numbers = [](const Tensor* tensor) { return numbers_in(*tensor); };
    largest.erase(std::ranges::min_element(largest, {}, numbers));
  }
  return largest;
}

std::optional<GpuKernel> product(const Graph& graph, const Op& op) {
  const std::vector<const Tensor*> inputs = operands(graph, op);
  if (inputs.empty() || op.outputs.empty() || !op.flops || op.flops->count <= 0) return std::nullopt;
  const double x = numbers_in(*inputs.front()), w = numbers_in(*inputs.back());
  double y = 0;
  for (const TensorId output : op.outputs) y = std::max(y, numbers_in(graph[output]));
  if (x <= 0 || w <= 0 || y <= 0) return std::nullopt;
  // batch m k = x, batch k n = w, batch m n = y, 2 batch m n k = flops
  const double twice = op.flops->count / 2;
  const double batch = std::round(x * w * y / (twice * twice));
  if (batch < 1) return std::nullopt;
  const double m = std::sqrt(x * y / (w * batch)), n = std::sqrt(w * y / (x * batch)),
               k = std::sqrt(x * w / (y * batch));
  constexpr double near = 0.01;  // a bias counts in some traces' flops
  const bool agrees = std::abs(batch * m * n * k / twice - 1) <= near;
  if (!agrees || std::min({m, n, k}) < 1) return std::nullopt;
  return GpuKernel{.kind = batch > 1 ? KernelKind::batched_product : KernelKind::product,
                   .dtype = written_dtype(graph, *inputs.front()),
                   .batch = batch,
                   .m = std::round(m),
                   .n = std::round(n),
                   .k = std::round(k)};
}

/// Flops of two products, of whole squares or of causal halves, forward: 4 or 2 numbers x sequence; the backward's five
/// products: 10 or 5.
std::optional<GpuKernel> attention(const Graph& graph, const Op& op, KernelKind kind) {
  if (op.inputs.empty() || !op.flops) return std::nullopt;
  const bool is_backward = kind == KernelKind::attention_backward;
  const std::size_t first = is_backward && op.inputs.size() > 1 ? 1 : 0;  // after the gradient: the queries
  const Tensor& query = graph[op.inputs[first]];
  if (query.shape.size() < 3) return std::nullopt;
  const double numbers = numbers_in(query), head_size = static_cast<double>(query.shape.back());
  for (const double products : is_backward ? std::array{5.0, 10.0, 4.0} : std::array{2.0, 4.0, 4.0}) {
    const double sequence = op.flops->count / (products * numbers);
    const bool is_length = std::ranges::any_of(
        query.shape, [&](std::int64_t length) { return std::abs(static_cast<double>(length) / sequence - 1) <= 0.01; });
    if (!is_length) continue;
    return GpuKernel{.kind = kind,
                     .dtype = written_dtype(graph, query),
                     .sequence = std::round(sequence),
                     .heads = numbers / (std::round(sequence) * head_size),
                     .head_size = head_size};
  }
  return std::nullopt;
}

KernelKind sort_of(std::optional<OpKind> kind) {
  using enum OpKind;
  if (is_one_of(kind, linear, linear_input_gradient, linear_weight_gradient, attention_scores, attention_values, mm,
                bmm, baddbmm, matmul)) {
    return KernelKind::product;
  }
  if (kind == fused_attention) return KernelKind::attention;
  if (kind == fused_attention_backward) return KernelKind::attention_backward;
  if (is_one_of(kind, batch_norm, batch_norm_input_gradient, batch_norm_weight_gradient, layer_norm,
                layer_norm_input_gradient, layer_norm_weight_gradient, native_batch_norm, native_batch_norm_backward,
                cudnn_batch_norm, cudnn_batch_norm_backward, native_layer_norm, native_layer_norm_backward)) {
    return KernelKind::norm;
  }
  if (is_one_of(kind, OpKind::softmax, softmax_gradient, cross_entropy, cross_entropy_gradient, log_softmax,
                log_softmax_backward)) {
    return KernelKind::softmax;
  }
  return KernelKind::elementwise;
}

}  // namespace

GpuKernel gpu_kernel(const Graph& graph, const Op& op) {
  if (op.phase == Phase::update) return {.kind = KernelKind::optimizer};
  const std::optional<OpKind> kind = nearest_kind(op.kind);
  const KernelKind sort = sort_of(kind);
  if (sort == KernelKind::product) return product(graph, op).value_or(GpuKernel{});
  if (sort == KernelKind::attention || sort == KernelKind::attention_backward) {
    return attention(graph, op, sort).value_or(GpuKernel{});
  }
  // What computes much for what it moves is no element-wise kernel, whatever its name.
  const bool moves = !op.flops || !op.bytes_moved || op.flops->count <= 8 * static_cast<double>(op.bytes_moved->count);
  if (!moves || is_one_of(kind, OpKind::stage, OpKind::conv)) return {};
  return {.kind = sort};
}

}  // namespace plimsoll
