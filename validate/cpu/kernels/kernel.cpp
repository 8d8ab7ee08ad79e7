#include "validate/cpu/kernels/kernel.h"

#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>

#include "sim/core/op_kind.h"
#include "validate/cpu/kernels/kernel_table.h"

namespace plimsoll {

namespace {

struct CpuRow {
  OpKind kind;
  Kernel (&make)(const Graph&, const Op&);
};

constexpr NetworkTable<CpuRow> cpu_rows = [] {
  using enum OpKind;
  return NetworkTable<CpuRow>{{
      {linear, cpu_kernels::linear},
      {linear_input_gradient, cpu_kernels::linear_input_gradient},
      {linear_weight_gradient, cpu_kernels::linear_weight_gradient},
      {convolution, cpu_kernels::convolution},
      {convolution_input_gradient, cpu_kernels::convolution_input_gradient},
      {convolution_weight_gradient, cpu_kernels::convolution_weight_gradient},
      {batch_norm, cpu_kernels::batch_norm},
      {batch_norm_input_gradient, cpu_kernels::batch_norm_input_gradient},
      {batch_norm_weight_gradient, cpu_kernels::batch_norm_weight_gradient},
      {layer_norm, cpu_kernels::layer_norm},
      {layer_norm_input_gradient, cpu_kernels::layer_norm_input_gradient},
      {layer_norm_weight_gradient, cpu_kernels::layer_norm_weight_gradient},
      {relu, cpu_kernels::relu},
      {relu_gradient, cpu_kernels::relu_gradient},
      {gelu, cpu_kernels::gelu},
      {gelu_gradient, cpu_kernels::gelu_gradient},
      {softmax, cpu_kernels::softmax},
      {softmax_gradient, cpu_kernels::softmax_gradient},
      {max_pool, cpu_kernels::max_pool},
      {max_pool_gradient, cpu_kernels::max_pool_gradient},
      {average_pool, cpu_kernels::average_pool},
      {average_pool_gradient, cpu_kernels::average_pool_gradient},
      {add, cpu_kernels::add},
      {attention_scores, cpu_kernels::attention_scores},
      {attention_values, cpu_kernels::attention_values},
      {attention_values_gradient, cpu_kernels::attention_values_gradient},
      {attention_qkv_gradient, cpu_kernels::attention_qkv_gradient},
      {fused_attention, cpu_kernels::fused_attention},
      {fused_attention_backward, cpu_kernels::fused_attention_backward},
      {embedding, cpu_kernels::embedding},
      {embedding_weight_gradient, cpu_kernels::embedding_weight_gradient},
      {lstm_gates, cpu_kernels::linear},
      {lstm_cell, cpu_kernels::lstm_cell},
      {lstm_cell_gradient, cpu_kernels::lstm_cell_gradient},
      {lstm_state_gradient, cpu_kernels::lstm_state_gradient},
      {lstm_weight_gradient, cpu_kernels::linear_weight_gradient},
      {root_norm, cpu_kernels::root_norm},
      {root_norm_input_gradient, cpu_kernels::root_norm_input_gradient},
      {root_norm_weight_gradient, cpu_kernels::root_norm_weight_gradient},
      {rotation, cpu_kernels::rotation},
      {rotation_gradient, cpu_kernels::rotation_gradient},
      {gated_silu, cpu_kernels::gated_silu},
      {gated_silu_gradient, cpu_kernels::gated_silu_gradient},
      {to_experts, cpu_kernels::to_experts},
      {to_experts_gradient, cpu_kernels::to_experts_gradient},
      {expert_product, cpu_kernels::expert_product},
      {expert_product_input_gradient, cpu_kernels::expert_product_input_gradient},
      {expert_product_weight_gradient, cpu_kernels::expert_product_weight_gradient},
      {from_experts, cpu_kernels::from_experts},
      {from_experts_gradient, cpu_kernels::from_experts_gradient},
      {cross_entropy, cpu_kernels::softmax},
      {cross_entropy_gradient, cpu_kernels::cross_entropy_gradient},
      {optimizer, cpu_kernels::optimizer},
  }};
}();
static_assert(has_every_kind(cpu_rows), "a kind of op has no row, or its row is not in its place");

}  // namespace

std::optional<Kernel> make_kernel(const Graph& graph, const Op& op) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  if (!kind) return std::nullopt;
  return row_of(cpu_rows, *kind).make(graph, op);
}

void use_one_thread() {
  omp_set_num_threads(1);
}

std::string kernel_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll
