#include "validate/cpu/kernels/kernel.h"

#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "validate/cpu/kernels/kernel_table.h"
#include "validate/networks/narrow_values.h"
#include "validate/networks/wide_op.h"
#include "validate/reference/elementwise.h"

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
      {cross_entropy, cpu_kernels::cross_entropy},
      {cross_entropy_gradient, cpu_kernels::cross_entropy_gradient},
      {optimizer, cpu_kernels::optimizer},
  }};
}();
static_assert(has_every_kind(cpu_rows), "a kind of op has no row, or its row is not in its place");

using KernelMaker = Kernel (*)(const Graph&, const Op&);

/// Ops whose kernel here takes fp32 alone.
bool takes_fp32_alone(const Graph& graph, const Op& op) {
  switch (*network_kind(op.kind)) {
    case OpKind::softmax_gradient:
      return !is_bf16(graph[op.inputs[0]]);  // of chances in fp32
    case OpKind::convolution:
    case OpKind::convolution_input_gradient:
    case OpKind::convolution_weight_gradient:
    case OpKind::batch_norm:
    case OpKind::batch_norm_input_gradient:
    case OpKind::batch_norm_weight_gradient:
    case OpKind::max_pool:
    case OpKind::max_pool_gradient:
    case OpKind::average_pool:
    case OpKind::average_pool_gradient:
    case OpKind::fused_attention:
    case OpKind::fused_attention_backward:
    case OpKind::lstm_cell:
    case OpKind::lstm_cell_gradient:
    case OpKind::lstm_state_gradient:
    case OpKind::root_norm:
    case OpKind::root_norm_input_gradient:
    case OpKind::root_norm_weight_gradient:
    case OpKind::rotation:
    case OpKind::rotation_gradient:
    case OpKind::gated_silu:
    case OpKind::gated_silu_gradient:
    case OpKind::to_experts:
    case OpKind::to_experts_gradient:
    case OpKind::from_experts:
    case OpKind::from_experts_gradient:
      return true;
    default:
      return false;
  }
}

void round_through_bf16(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = as_float(as_bf16(x[i]));
}

void round_through_8_bits(const KernelArguments& a, const WideCopy& copy) {
  if (copy.rounds) return plain::through_8_bits(a.in(copy.index), copy.numbers, *copy.in_8_bits, copy.address(a));
  plain::through_8_bits(a.in_as<Bf16>(copy.index), copy.numbers, *copy.in_8_bits, copy.address(a));
}

/// The kernel of the same op in fp32, on copies in the scratch: inputs are widened, parameters of a product are
/// rounded to bf16 first, operands of products in fp8 to that, results are rounded once.
Kernel kernel_through_fp32(const Graph& graph, const Op& op, KernelMaker make) {
  const WideOp wide(graph, op);
  Kernel kernel = make(wide.graph, wide.op);
  return {[in_fp32 = kernel.run, inputs = wide.inputs, outputs = wide.outputs,
           copies = wide.copies](const KernelArguments& a) {
            for (const WideCopy& copy : inputs) {
              if (copy.in_8_bits) {
                round_through_8_bits(a, copy);
              } else if (copy.rounds) {
                round_through_bf16(a.in(copy.index), copy.numbers, copy.address(a));
              } else {
                plain::widen(a.in_as<Bf16>(copy.index), copy.numbers, copy.address(a));
              }
            }
            in_fp32(WideOp::arguments(a, inputs, outputs, copies));
            for (const WideCopy& copy : outputs) {
              plain::narrow(copy.address(a), copy.numbers, a.out_as<Bf16>(copy.index));
            }
          },
          wide.copies + kernel.scratch};
}

/// A product in fp8. The gradient of a bias sums what is not rounded.
Kernel fp8_kernel(const Graph& graph, const Op& op, KernelMaker make) {
  if (op.outputs.size() == 1) return kernel_through_fp32(graph, op, make);
  Op of_weight = op;
  of_weight.outputs.resize(1);
  Kernel kernel = kernel_through_fp32(graph, of_weight, make);
  const RowSizes gradient = row_sizes(graph[op.inputs[1]]);
  kernel.run = [product = kernel.run, gradient](const KernelArguments& a) {
    product(a);
    plain::column_sums(a.in_as<Bf16>(1), gradient.rows, gradient.columns, a.out(1));
  };
  return kernel;
}

/// In bf16 with sums in fp32 where the kind's kernel does so on this processor; else through fp32. Nothing where the
/// kind is not known in bf16.
std::optional<Kernel> bf16_kernel(const Graph& graph, const Op& op, KernelMaker make) {
  const std::optional<BfloatUse> use = bfloat_use(op);
  if (!use) return std::nullopt;
  if (multiplies_8_bits(op)) return fp8_kernel(graph, op, make);
  if (takes_fp32_alone(graph, op)) return kernel_through_fp32(graph, op, make);
  try {
    return make(graph, op);
  } catch (const dnnl::error&) {  // a processor without AVX-512
    return kernel_through_fp32(graph, op, make);
  }
}

}  // namespace

std::optional<Kernel> make_kernel(const Graph& graph, const Op& op) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  if (!kind) return std::nullopt;
  const auto make = row_of(cpu_rows, *kind).make;
  return reads_or_makes_bf16(graph, op) ? bf16_kernel(graph, op, make) : make(graph, op);
}

void use_one_thread() {
  omp_set_num_threads(1);
}

std::string kernel_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll
