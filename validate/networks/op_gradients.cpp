#include "validate/networks/op_gradients.h"

#include <utility>
#include <vector>

namespace plimsoll {
namespace {

TensorId gradient_of_result(const BackwardWriter& writer, const Op& forward) {
  return writer.gradient_of(forward.outputs[0]);
}

/// Of statistics over x, with scale and shift.
void normalization_gradients(BackwardWriter& writer, const Op& forward, OpKind of_input, OpKind of_weight) {
  const TensorId x = forward.inputs[0], scale = forward.inputs[1], shift = forward.inputs[2];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(of_input, forward, {x, scale, gradient}, x);
  writer.weight_gradient(of_weight, forward, {x, gradient}, {scale, shift});
}

/// Of a function of one input whose gradient needs its result.
void gradient_by_result(BackwardWriter& writer, const Op& forward, OpKind kind) {
  writer.input_gradient(kind, forward, {forward.outputs[0], gradient_of_result(writer, forward)}, forward.inputs[0]);
}

/// Of one whose gradient needs its input.
void gradient_by_input(BackwardWriter& writer, const Op& forward, OpKind kind) {
  writer.input_gradient(kind, forward, {forward.inputs[0], gradient_of_result(writer, forward)}, forward.inputs[0]);
}

}  // namespace

namespace op_gradients {

void linear(BackwardWriter& writer, const Op& forward) {
  const TensorId x = forward.inputs[0], weight = forward.inputs[1], bias = forward.inputs[2];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::linear_input_gradient, forward, {gradient, weight}, x);
  writer.weight_gradient(OpKind::linear_weight_gradient, forward, {x, gradient}, {weight, bias});
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

void relu(BackwardWriter& writer, const Op& forward) {
  gradient_by_result(writer, forward, OpKind::relu_gradient);
}

void softmax(BackwardWriter& writer, const Op& forward) {
  gradient_by_result(writer, forward, OpKind::softmax_gradient);
}

void gelu(BackwardWriter& writer, const Op& forward) {
  gradient_by_input(writer, forward, OpKind::gelu_gradient);
}

void max_pool(BackwardWriter& writer, const Op& forward) {
  gradient_by_input(writer, forward, OpKind::max_pool_gradient);
}

void average_pool(BackwardWriter& writer, const Op& forward) {
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.input_gradient(OpKind::average_pool_gradient, forward, {gradient}, forward.inputs[0]);
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

void embedding(BackwardWriter& writer, const Op& forward) {
  const TensorId tokens = forward.inputs[0], table = forward.inputs[1], positions = forward.inputs[2];
  const TensorId gradient = gradient_of_result(writer, forward);
  writer.weight_gradient(OpKind::embedding_weight_gradient, forward, {tokens, gradient}, {table, positions});
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

void cross_entropy(BackwardWriter& writer, const Op& forward) {
  writer.input_gradient(OpKind::cross_entropy_gradient, forward, {forward.outputs[0]}, forward.inputs[0]);
}

}  // namespace op_gradients
}  // namespace plimsoll
