#include "validate/networks/narrow_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {
namespace {

/// What a kernel keeps in fp32 though it is a value: probabilities, of which logarithms are taken, logarithms of sums,
/// and gradients of experts' chances.
bool stays_wide(const Op& maker, std::size_t output) {
  const std::optional<OpKind> kind = network_kind(maker.kind);
  if (kind == OpKind::cross_entropy) return true;
  return (kind == OpKind::fused_attention || kind == OpKind::from_experts_gradient) && output == 1;
}

/// Chances, by which tokens choose experts: in bf16 more of them would be equal.
bool reads_wide(const Op& reader, std::size_t input) {
  return network_kind(reader.kind) == OpKind::to_experts && input == 1;
}

bool is_value(const Tensor& tensor) {
  const bool is_kind =
      tensor.kind == TensorKind::input || tensor.kind == TensorKind::activation || tensor.kind == TensorKind::gradient;
  return is_kind && tensor.dtype == "fp32";
}

bool is_linear(const Op& op) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  return kind == OpKind::linear || kind == OpKind::linear_input_gradient || kind == OpKind::linear_weight_gradient;
}

/// The weights of layers whose results a softmax or the loss reads.
std::set<TensorId> weights_of_choices(const Graph& graph) {
  std::set<TensorId> chosen_from, weights;
  for (const Op& op : graph.ops) {
    const std::optional<OpKind> kind = network_kind(op.kind);
    if (kind == OpKind::softmax || kind == OpKind::cross_entropy) chosen_from.insert(op.inputs[0]);
  }
  for (const Op& op : graph.ops) {
    if (network_kind(op.kind) == OpKind::linear && chosen_from.contains(op.outputs[0])) weights.insert(op.inputs[1]);
  }
  return weights;
}

/// The weight of a linear layer's op: it is read, or its gradient is made.
TensorId weight_of(const Graph& graph, const Op& op) {
  if (network_kind(op.kind) != OpKind::linear_weight_gradient) return op.inputs[1];
  const std::string forward(*attribute_of(op, "of"));
  return std::ranges::find(graph.ops, forward, &Op::name)->inputs[1];
}

constexpr std::int64_t divisor_in_fp8 = 16;  ///< of cuBLASLt's products: rows of matrices begin at 16 bytes

}  // namespace

std::optional<BfloatUse> bfloat_use(const Op& op) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  if (!kind) return std::nullopt;
  switch (*kind) {
    case OpKind::linear:
    case OpKind::linear_input_gradient:
    case OpKind::convolution:
    case OpKind::convolution_input_gradient:
    case OpKind::lstm_gates:
    case OpKind::lstm_state_gradient:
    case OpKind::expert_product:
    case OpKind::expert_product_input_gradient:
      return BfloatUse::product;
    case OpKind::linear_weight_gradient:
    case OpKind::convolution_weight_gradient:
    case OpKind::batch_norm:
    case OpKind::batch_norm_input_gradient:
    case OpKind::batch_norm_weight_gradient:
    case OpKind::layer_norm:
    case OpKind::layer_norm_input_gradient:
    case OpKind::layer_norm_weight_gradient:
    case OpKind::relu:
    case OpKind::relu_gradient:
    case OpKind::gelu:
    case OpKind::gelu_gradient:
    case OpKind::softmax:
    case OpKind::softmax_gradient:
    case OpKind::max_pool:
    case OpKind::max_pool_gradient:
    case OpKind::average_pool:
    case OpKind::average_pool_gradient:
    case OpKind::add:
    case OpKind::attention_scores:
    case OpKind::attention_values:
    case OpKind::attention_values_gradient:
    case OpKind::attention_qkv_gradient:
    case OpKind::fused_attention:
    case OpKind::fused_attention_backward:
    case OpKind::embedding:
    case OpKind::embedding_weight_gradient:
    case OpKind::lstm_cell:
    case OpKind::lstm_cell_gradient:
    case OpKind::lstm_weight_gradient:
    case OpKind::root_norm:
    case OpKind::root_norm_input_gradient:
    case OpKind::root_norm_weight_gradient:
    case OpKind::rotation:
    case OpKind::rotation_gradient:
    case OpKind::gated_silu:
    case OpKind::gated_silu_gradient:
    case OpKind::to_experts:
    case OpKind::to_experts_gradient:
    case OpKind::expert_product_weight_gradient:
    case OpKind::from_experts:
    case OpKind::from_experts_gradient:
    case OpKind::cross_entropy:
    case OpKind::cross_entropy_gradient:
    case OpKind::optimizer:
      return BfloatUse::others;
    default:
      return std::nullopt;
  }
}

const Op* op_without_bf16(const Network& network) {
  const auto found = std::ranges::find_if(network.graph.ops, [](const Op& op) { return !bfloat_use(op); });
  return found == network.graph.ops.end() ? nullptr : &*found;
}

void narrow_values(Network& network, const StatedRates& rates) {
  EXPECTS(op_without_bf16(network) == nullptr);
  Graph& graph = network.graph;
  std::vector<bool> wide(graph.tensors.size());
  for (const Op& op : graph.ops) {
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (stays_wide(op, i)) wide[op.outputs[i].index] = true;
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (reads_wide(op, i)) wide[op.inputs[i].index] = true;
    }
  }
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    Tensor& tensor = graph.tensors[t];
    if (wide[t] || !is_value(tensor)) continue;
    tensor.dtype = "bf16";
    tensor.bytes = Bytes{tensor.bytes.count / 2};
  }
  graph.source.dtype = "bf16";  // in which products compute; tensors say their own
  state_costs(graph, rates);
}

std::optional<std::string> products_in_fp8(Network& network, const StatedRates& rates) {
  Graph& graph = network.graph;
  const std::set<TensorId> kept = weights_of_choices(graph);
  bool is_any = false;
  for (Op& op : graph.ops) {
    if (!is_linear(op)) continue;
    const TensorId weight = weight_of(graph, op);
    if (kept.contains(weight)) continue;
    const std::int64_t rows = row_sizes(graph[op.inputs[0]]).rows, from = graph[weight].shape[0],
                       to = graph[weight].shape[1];
    if (rows % divisor_in_fp8 != 0 || from % divisor_in_fp8 != 0 || to % divisor_in_fp8 != 0) {
      return fmt::format(
          "'{}' multiplies {} rows of {} numbers, {} of a result; products in fp8 take multiples of {}, as cuBLASLt "
          "does",
          op.name, rows, from, to, divisor_in_fp8);
    }
    op.attributes.emplace_back("products", "fp8");
    is_any = true;
  }
  if (!is_any) return "has no linear layer but its last, which stays in bf16; values=bf16 has the same numbers";
  state_costs(graph, rates);
  return std::nullopt;
}

std::optional<In8Bits> rounded_operand(const Op& op, std::size_t input) {
  if (!multiplies_8_bits(op) || input > 1) return std::nullopt;
  const std::optional<OpKind> kind = network_kind(op.kind);
  const std::size_t gradient = kind == OpKind::linear_input_gradient    ? 0
                               : kind == OpKind::linear_weight_gradient ? 1
                                                                        : 2;
  return input == gradient ? In8Bits::e5m2 : In8Bits::e4m3;
}

}  // namespace plimsoll
