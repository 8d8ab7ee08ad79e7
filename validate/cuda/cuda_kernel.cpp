#include "validate/cuda/cuda_kernel.h"

#include "sim/core/op_kind.h"
#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/narrow_kernels.h"

namespace plimsoll {
namespace {

struct CudaRow {
  OpKind kind;
  CudaKernel (&make)(const Graph&, const Op&, const Libraries&);
};

constexpr NetworkTable<CudaRow> cuda_rows = [] {
  using enum OpKind;
  return NetworkTable<CudaRow>{{
      {linear, cuda_kernels::linear},
      {linear_input_gradient, cuda_kernels::linear_input_gradient},
      {linear_weight_gradient, cuda_kernels::linear_weight_gradient},
      {convolution, cuda_kernels::convolution},
      {convolution_input_gradient, cuda_kernels::convolution_input_gradient},
      {convolution_weight_gradient, cuda_kernels::convolution_weight_gradient},
      {batch_norm, cuda_kernels::batch_norm},
      {batch_norm_input_gradient, cuda_kernels::batch_norm_input_gradient},
      {batch_norm_weight_gradient, cuda_kernels::batch_norm_weight_gradient},
      {layer_norm, cuda_kernels::layer_norm},
      {layer_norm_input_gradient, cuda_kernels::layer_norm_input_gradient},
      {layer_norm_weight_gradient, cuda_kernels::layer_norm_weight_gradient},
      {relu, cuda_kernels::relu},
      {relu_gradient, cuda_kernels::relu_gradient},
      {gelu, cuda_kernels::gelu},
      {gelu_gradient, cuda_kernels::gelu_gradient},
      {softmax, cuda_kernels::softmax},
      {softmax_gradient, cuda_kernels::softmax_gradient},
      {max_pool, cuda_kernels::max_pool},
      {max_pool_gradient, cuda_kernels::max_pool_gradient},
      {average_pool, cuda_kernels::average_pool},
      {average_pool_gradient, cuda_kernels::average_pool_gradient},
      {add, cuda_kernels::add},
      {attention_scores, cuda_kernels::attention_scores},
      {attention_values, cuda_kernels::attention_values},
      {attention_values_gradient, cuda_kernels::attention_values_gradient},
      {attention_qkv_gradient, cuda_kernels::attention_qkv_gradient},
      {fused_attention, cuda_kernels::fused_attention},
      {fused_attention_backward, cuda_kernels::fused_attention_backward},
      {embedding, cuda_kernels::embedding},
      {embedding_weight_gradient, cuda_kernels::embedding_weight_gradient},
      {lstm_gates, cuda_kernels::linear},
      {lstm_cell, cuda_kernels::lstm_cell},
      {lstm_cell_gradient, cuda_kernels::lstm_cell_gradient},
      {lstm_state_gradient, cuda_kernels::lstm_state_gradient},
      {lstm_weight_gradient, cuda_kernels::linear_weight_gradient},
      {root_norm, cuda_kernels::root_norm},
      {root_norm_input_gradient, cuda_kernels::root_norm_input_gradient},
      {root_norm_weight_gradient, cuda_kernels::root_norm_weight_gradient},
      {rotation, cuda_kernels::rotation},
      {rotation_gradient, cuda_kernels::rotation_gradient},
      {gated_silu, cuda_kernels::gated_silu},
      {gated_silu_gradient, cuda_kernels::gated_silu_gradient},
      {to_experts, cuda_kernels::to_experts},
      {to_experts_gradient, cuda_kernels::to_experts_gradient},
      {expert_product, cuda_kernels::expert_product},
      {expert_product_input_gradient, cuda_kernels::expert_product_input_gradient},
      {expert_product_weight_gradient, cuda_kernels::expert_product_weight_gradient},
      {from_experts, cuda_kernels::from_experts},
      {from_experts_gradient, cuda_kernels::from_experts_gradient},
      {cross_entropy, cuda_kernels::softmax},
      {cross_entropy_gradient, cuda_kernels::cross_entropy_gradient},
      {optimizer, cuda_kernels::optimizer},
  }};
}();
static_assert(has_every_kind(cuda_rows), "a kind of op has no row, or its row is not in its place");

}  // namespace

std::optional<CudaKernel> make_cuda_kernel(const Graph& graph, const Op& op, const Libraries& libraries) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  if (!kind) return std::nullopt;
  const auto make = row_of(cuda_rows, *kind).make;
  if (reads_or_makes_bf16(graph, op)) return narrow_cuda_kernel(graph, op, libraries, make);
  return make(graph, op, libraries);
}

}  // namespace plimsoll
