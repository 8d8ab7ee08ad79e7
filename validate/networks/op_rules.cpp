#include "validate/networks/op_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "validate/networks/backward_writer.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/network.h"

namespace plimsoll {
namespace {

// The backward of each kind of forward: which ops make the gradients of its inputs, and what they read.

TensorId gradient_of_result(const BackwardWriter& writer, const Op& forward) {
  return writer.gradient_of(forward.outputs[0]);
}

std::vector<TensorId> inputs_from(const Op& op, std::ptrdiff_t first) {
  return {op.inputs.begin() + first, op.inputs.end()};
}

/// Of statistics over x, with scale and shift.
void normalization_gradients(BackwardWriter& writer, const Op& forward, OpKind of_input, OpKind of_weight) {
  const TensorId x = forward.inputs[0], scale = forward.inputs[1], shift = forward.inputs[2];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(of_input, forward, {x, scale, gradient}, x);
  writer.weight_gradient(of_weight, forward, {x, gradient}, {scale, shift});
}

/// Of a function of one input, whose gradient reads what the table of kinds says that it saves.
template <OpKind kind, OpKind gradient>
void of_one_input(BackwardWriter& writer, const Op& forward) {
  constexpr OpSaves saves = row_of(kind).saves;
  static_assert(saves == OpSaves::nothing || saves == OpSaves::input || saves == OpSaves::result);
  std::vector<TensorId> reads;
  if constexpr (saves == OpSaves::input) reads = forward.inputs;
  if constexpr (saves == OpSaves::result) reads = forward.outputs;
  reads.push_back(gradient_of_result(writer, forward));
  writer.input_gradient(gradient, forward, std::move(reads), forward.inputs[0]);
}

namespace op_gradients {

void linear(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], weight = forward.inputs[1];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::linear_input_gradient, forward, {gradient, weight}, x);
  writer.weight_gradient(OpKind::linear_weight_gradient, forward, {x, gradient}, inputs_from(forward, 1));
}

void convolution(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], weight = forward.inputs[1];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::convolution_input_gradient, forward, {gradient, weight}, x);
  writer.weight_gradient(OpKind::convolution_weight_gradient, forward, {x, gradient}, {weight});
}

void batch_norm(BackwardWriter& writer, const Op& forward) {
  normalization_gradients(writer, forward, OpKind::batch_norm_input_gradient, OpKind::batch_norm_weight_gradient);
}

void layer_norm(BackwardWriter& writer, const Op& forward) {
  normalization_gradients(writer, forward, OpKind::layer_norm_input_gradient, OpKind::layer_norm_weight_gradient);
}

void add(BackwardWriter& writer, const Op& forward) {
  const TensorId gradient = gradient_of_result(writer, forward);
  for (const TensorId t : forward.inputs) writer.pass_on(gradient, t);
}

void attention_values(BackwardWriter& writer, const Op& forward) {
  std::vector<TensorId> inputs = forward.inputs;  // weights, then qkv of each slice
  inputs.front() = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::attention_values_gradient, forward, std::move(inputs), forward.inputs[0]);
}

/// Query, key and value are one tensor, so their gradients are made together, from both products.
void attention_scores(BackwardWriter& writer, const Op& forward) {
  const TensorId qkv = forward.inputs[0], scores = forward.outputs[0];
  const Op values = writer.reader(qkv, OpKind::attention_values);
  const TensorId weights = values.inputs[0], of_mixed = writer.gradient_of(values.outputs[0]);
  std::vector<TensorId> inputs{writer.gradient_of(scores), weights, of_mixed};
  inputs.insert(inputs.end(), forward.inputs.begin(), forward.inputs.end());
  writer.input_gradient(OpKind::attention_qkv_gradient, forward, std::move(inputs), qkv);
}

void fused_attention(BackwardWriter& writer, const Op& forward) {
  const TensorId q = forward.inputs[0], kv = forward.inputs[1], mixed = forward.outputs[0], sums = forward.outputs[1];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradients(OpKind::fused_attention_backward, forward, {gradient, q, kv, mixed, sums}, {q, kv});
}

void embedding(BackwardWriter& writer, const Op& forward) {
  const TensorId tokens = forward.inputs[0], gradient = gradient_of_result(writer, forward);
  writer.weight_gradient(OpKind::embedding_weight_gradient, forward, {tokens, gradient}, inputs_from(forward, 1));
}

/// The cell's backward goes to the gates first, then together with theirs to the state before.
void lstm_gates(BackwardWriter& writer, const Op& forward) {
  const TensorId state = forward.inputs[0], weight = forward.inputs[1], bias = forward.inputs[2];
  const TensorId gates = forward.outputs[0];
  const TensorId gradient = gradient_of_result(writer, writer.reader(gates, OpKind::lstm_cell));
  writer.input_gradient(OpKind::lstm_cell_gradient, forward, {gradient, gates, state}, gates);
  const TensorId of_gates = writer.gradient_of(gates);
  writer.input_gradient(OpKind::lstm_state_gradient, forward, {of_gates, weight, gradient, gates, state}, state);
  writer.weight_gradient(OpKind::lstm_weight_gradient, forward, {state, of_gates}, {weight, bias});
}

/// Its gates do both.
void lstm_cell(BackwardWriter&, const Op&) {}

void root_norm(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], scale = forward.inputs[1], gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::root_norm_input_gradient, forward, {x, scale, gradient}, x);
  writer.weight_gradient(OpKind::root_norm_weight_gradient, forward, {x, gradient}, {scale});
}

void gated_silu(BackwardWriter& writer, const Op& forward) {
  const TensorId gate = forward.inputs[0], up = forward.inputs[1], gradient = gradient_of_result(writer, forward);
  writer.input_gradients(OpKind::gated_silu_gradient, forward, {gate, up, gradient}, {gate, up});
}

/// Which expert a token goes to has no gradient.
void to_experts(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], chances = forward.inputs[1];
  writer.input_gradient(OpKind::to_experts_gradient, forward, {gradient_of_result(writer, forward), chances}, x);
}

void expert_product(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], weight = forward.inputs[1], gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::expert_product_input_gradient, forward, {gradient, weight}, x);
  writer.weight_gradient(OpKind::expert_product_weight_gradient, forward, {x, gradient}, {weight});
}

void from_experts(BackwardWriter& writer, const Op& forward) {
  const TensorId rows = forward.inputs[0], chances = forward.inputs[1], gradient = gradient_of_result(writer, forward);
  writer.input_gradients(OpKind::from_experts_gradient, forward, {gradient, rows, chances}, {rows, chances});
}

void cross_entropy(BackwardWriter& writer, const Op& forward) {
  writer.input_gradient(OpKind::cross_entropy_gradient, forward, {forward.outputs[0]}, forward.inputs[0]);
}

}  // namespace op_gradients

const Tensor& input_of(const Graph& graph, const Op& op, std::size_t i) {
  return graph[op.inputs[i]];
}

const Tensor& output_of(const Graph& graph, const Op& op) {
  return graph[op.outputs[0]];
}

double numbers_in(const Shape& shape) {
  double all = 1;
  for (const std::int64_t n : shape) all *= static_cast<double>(n);
  return all;
}

// --- shapes of results

template <std::size_t i = 0>
Shape as_input(const Graph& graph, const Op& op) {
  return input_of(graph, op, i).shape;
}

/// x is (..., k), weight (k, n) or, transposed, (n, k): (..., n).
Shape of_product(const Graph& graph, const Op& op) {
  Shape shape = input_of(graph, op, 0).shape;
  shape.back() = input_of(graph, op, 1).shape[attribute_of(op, transposed_attribute) ? 0 : 1];
  return shape;
}

std::int64_t strided_size(std::int64_t size, std::int64_t stride) {
  return (size + stride - 1) / stride;
}

Shape of_convolution(const Graph& graph, const Op& op) {
  const Shape &x = input_of(graph, op, 0).shape, &weight = input_of(graph, op, 1).shape;
  const std::int64_t stride = whole_attribute(op, "stride");
  return {x[0], strided_size(x[1], stride), strided_size(x[2], stride), weight[3]};
}

Shape of_max_pool(const Graph& graph, const Op& op) {
  const Shape& x = input_of(graph, op, 0).shape;
  return {x[0], strided_size(x[1], 2), strided_size(x[2], 2), x[3]};
}

Shape of_average_pool(const Graph& graph, const Op& op) {
  const Shape& x = input_of(graph, op, 0).shape;
  return {x[0], x[3]};
}

Shape of_attention_scores(const Graph& graph, const Op& op) {
  const AttentionSizes s(input_of(graph, op, 0), op);
  const auto slices = static_cast<std::int64_t>((op.inputs.size() + 1) / 2);  // each with room for its gradients
  return {s.batch, s.heads, s.sequence, slices * s.sequence};
}

Shape of_attention_values(const Graph& graph, const Op& op) {
  const AttentionSizes s(input_of(graph, op, 1), op);
  return {s.batch, s.sequence, s.width};
}

Shape of_embedding(const Graph& graph, const Op& op) {
  const Shape &tokens = input_of(graph, op, 0).shape, &table = input_of(graph, op, 1).shape;
  return {tokens[0], tokens[1], table[1]};
}

/// Tokens (..., width), their chances (..., experts): (experts, room, width).
Shape of_rows_at_experts(const Graph& graph, const Op& op) {
  return {input_of(graph, op, 1).shape.back(), whole_attribute(op, "room"), input_of(graph, op, 0).shape.back()};
}

/// Rows of experts, chances: as many tokens as there are chances.
Shape of_rows_back(const Graph& graph, const Op& op) {
  Shape shape = input_of(graph, op, 1).shape;
  shape.back() = input_of(graph, op, 0).shape.back();
  return shape;
}

Shape of_expert_product(const Graph& graph, const Op& op) {
  const Shape &x = input_of(graph, op, 0).shape, &weight = input_of(graph, op, 1).shape;
  return {x[0], x[1], weight[2]};
}

// --- flops

Flops no_flops(const Graph&, const Op&) {
  return Flops{0};
}

/// So many operations for each number of an input.
template <int operations, std::size_t i = 0>
Flops per_input(const Graph& graph, const Op& op) {
  return {numbers_in(input_of(graph, op, i).shape) * operations};
}

template <int operations>
Flops per_output(const Graph& graph, const Op& op) {
  return {numbers_in(output_of(graph, op).shape) * operations};
}

/// Of a product with a weight, forward or backward: `result` has the shape of what the forward made. Of pictures the
/// weight has three dimensions that are summed over.
Flops of_weight(const Tensor& result, const Tensor& weight) {
  const double summed = numbers_in(weight.shape) / static_cast<double>(result.shape.back());
  return {2 * numbers_in(result.shape) * summed};
}

Flops forward_product(const Graph& graph, const Op& op) {
  return of_weight(output_of(graph, op), input_of(graph, op, 1));
}

Flops input_gradient_product(const Graph& graph, const Op& op) {
  return of_weight(input_of(graph, op, 0), input_of(graph, op, 1));
}

Flops weight_gradient_product(const Graph& graph, const Op& op) {
  return of_weight(input_of(graph, op, 1), output_of(graph, op));
}

/// Of a product of each expert, forward or backward; `summed`: that dimension of the second input times numbers of the
/// first.
template <std::size_t with>
Flops expert_flops(const Graph& graph, const Op& op) {
  return {2 * numbers_in(input_of(graph, op, 0).shape) * static_cast<double>(input_of(graph, op, 1).shape[with])};
}

/// Of so many products of attention; `qkv` is that input.
template <int products, std::size_t qkv>
Flops attention_products(const Graph& graph, const Op& op) {
  const AttentionSizes s(input_of(graph, op, qkv), op);
  return {products * 2 * static_cast<double>(s.batch * s.sequence * s.sequence * s.width)};
}

/// Of so many products of which a causal mask leaves half; q and keys with values are these inputs.
template <int products, std::size_t q>
Flops causal_products(const Graph& graph, const Op& op) {
  const auto keys = static_cast<double>(input_of(graph, op, q + 1).shape[1]);
  return {products * keys * numbers_in(input_of(graph, op, q).shape)};
}

// --- bytes moved

/// Every input and output once, and once more what is changed in place.
Bytes each_tensor(const Graph& graph, const Op& op) {
  Bytes traffic;
  for (const std::vector<TensorId>* list : {&op.inputs, &op.outputs, &op.mutates}) {
    for (const TensorId t : *list) traffic += graph[t].bytes;
  }
  return traffic;
}

/// The same, and of a product in fp8 what rounding takes: each operand is read once more, for its largest magnitude,
/// and its numbers of 8 bits are written and read.
Bytes with_rounding(const Graph& graph, const Op& op) {
  Bytes traffic = each_tensor(graph, op);
  if (!multiplies_8_bits(op)) return traffic;
  for (std::size_t i = 0; i < 2; ++i) {
    const Tensor& operand = input_of(graph, op, i);
    traffic += operand.bytes + Bytes{2 * number_count(operand)};
  }
  return traffic;
}

// --- the table

using ShapeRule = decltype(OpRule::result);
using BackwardRule = decltype(OpRule::backward);
using FlopsRule = decltype(OpRule::flops);
using BytesRule = decltype(OpRule::bytes_moved);

constexpr OpRule forward(OpKind kind, ShapeRule result, BackwardRule backward, FlopsRule flops,
                         BytesRule bytes = each_tensor) {
  return {kind, result, backward, flops, bytes};
}

/// A gradient, or an update.
constexpr OpRule consequence(OpKind kind, FlopsRule flops, BytesRule bytes = each_tensor) {
  return {kind, nullptr, nullptr, flops, bytes};
}

constexpr NetworkTable<OpRule> op_rules = [] {
  using enum OpKind;
  namespace of = op_gradients;
  return NetworkTable<OpRule>{
      forward(linear, of_product, of::linear, forward_product, with_rounding),
      consequence(linear_input_gradient, input_gradient_product, with_rounding),
      consequence(linear_weight_gradient, weight_gradient_product, with_rounding),
      forward(convolution, of_convolution, of::convolution, forward_product),
      consequence(convolution_input_gradient, input_gradient_product),
      consequence(convolution_weight_gradient, weight_gradient_product),
      forward(batch_norm, as_input, of::batch_norm, per_input<8>),
      consequence(batch_norm_input_gradient, per_input<8>),
      consequence(batch_norm_weight_gradient, per_input<8>),
      forward(layer_norm, as_input, of::layer_norm, per_input<8>),
      consequence(layer_norm_input_gradient, per_input<8>),
      consequence(layer_norm_weight_gradient, per_input<8>),
      forward(relu, as_input, of_one_input<relu, relu_gradient>, per_input<1>),
      consequence(relu_gradient, per_input<1>),
      forward(gelu, as_input, of_one_input<gelu, gelu_gradient>, per_input<20>),
      consequence(gelu_gradient, per_input<20>),
      forward(softmax, as_input, of_one_input<softmax, softmax_gradient>, per_input<5>),
      consequence(softmax_gradient, per_input<5>),
      forward(max_pool, of_max_pool, of_one_input<max_pool, max_pool_gradient>, per_input<3>),
      consequence(max_pool_gradient, per_input<3>),
      forward(average_pool, of_average_pool, of_one_input<average_pool, average_pool_gradient>, per_input<1>),
      consequence(average_pool_gradient, per_output<1>),
      forward(add, as_input, of::add, per_input<1>),
      forward(attention_scores, of_attention_scores, of::attention_scores, attention_products<1, 0>),
      forward(attention_values, of_attention_values, of::attention_values, attention_products<1, 1>),
      consequence(attention_values_gradient, attention_products<1, 1>),
      consequence(attention_qkv_gradient, attention_products<3, 3>),
      forward(fused_attention, as_input, of::fused_attention, causal_products<2, 0>),
      consequence(fused_attention_backward, causal_products<5, 1>),
      forward(embedding, of_embedding, of::embedding, per_output<1>),
      consequence(embedding_weight_gradient, per_input<1, 1>),
      forward(lstm_gates, of_product, of::lstm_gates, forward_product),
      forward(lstm_cell, as_input<1>, of::lstm_cell, per_input<8>),
      consequence(lstm_cell_gradient, per_input<10, 1>),
      consequence(lstm_state_gradient, input_gradient_product),
      consequence(lstm_weight_gradient, weight_gradient_product),
      forward(root_norm, as_input, of::root_norm, per_input<4>),
      consequence(root_norm_input_gradient, per_input<8>),
      consequence(root_norm_weight_gradient, per_input<5>),
      forward(rotation, as_input, of_one_input<rotation, rotation_gradient>, per_input<3>),
      consequence(rotation_gradient, per_input<3>),
      forward(gated_silu, as_input, of::gated_silu, per_input<6>),
      consequence(gated_silu_gradient, per_input<12>),
      forward(to_experts, of_rows_at_experts, of::to_experts, no_flops),
      consequence(to_experts_gradient, per_output<1>),
      forward(expert_product, of_expert_product, of::expert_product, expert_flops<2>),
      consequence(expert_product_input_gradient, expert_flops<1>),
      consequence(expert_product_weight_gradient, expert_flops<2>),
      forward(from_experts, of_rows_back, of::from_experts, per_input<2>),
      consequence(from_experts_gradient, per_input<3, 1>),
      forward(cross_entropy, as_input, of::cross_entropy, per_input<5>),
      consequence(cross_entropy_gradient, per_input<5>),
      consequence(optimizer, no_flops),
  };
}();
static_assert(has_every_kind(op_rules), "a kind of op has no row, or its row is not in its place");

}  // namespace

const OpRule& rule_of(OpKind kind) {
  return row_of(op_rules, kind);
}

const OpRule& rule_of(const Op& op) {
  const std::optional<OpKind> kind = network_kind(op.kind);
  EXPECTS(kind);
  return rule_of(*kind);
}

}  // namespace plimsoll
