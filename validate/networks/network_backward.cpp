// The backward ops of every layer: what reverse differentiation makes of a NetworkBuilder's forward ops.

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "validate/networks/network_builder.h"

namespace plimsoll {

TensorId NetworkBuilder::new_gradient(TensorId t) {
  const Tensor of = network_.graph[t];
  const std::uint32_t before = contributions_[t]++;
  const std::string suffix = before == 0 ? "" : " (" + std::to_string(before + 1) + ")";
  return tensor("gradient of " + of.name + suffix, TensorKind::gradient, of.shape);
}

void NetworkBuilder::settle(TensorId t, TensorId contribution) {
  const auto [place, is_first] = gradients_.try_emplace(t, contribution);
  if (is_first) return;
  const Tensor of = network_.graph[t];
  const TensorId sum = tensor("sum of gradients of " + of.name, TensorKind::gradient, of.shape);
  op("add", "sum of gradients of " + of.name, Phase::backward_input, {place->second, contribution}, sum,
     per_element(t, 1));
  place->second = sum;
}

void NetworkBuilder::input_gradient(const std::string& kind, const Op& forward, std::vector<TensorId> inputs,
                                    TensorId of, Flops work) {
  if (!wants_gradient(of)) return;
  const TensorId made = new_gradient(of);
  op(kind, forward.name + " input gradient", Phase::backward_input, std::move(inputs), made, work, forward.attributes);
  settle(of, made);
}

TensorId NetworkBuilder::parameter_gradient(TensorId parameter) {
  const auto found = parameter_gradients_.find(parameter);
  if (found != parameter_gradients_.end()) return found->second;
  const Tensor of = network_.graph[parameter];
  const TensorId made = tensor("gradient of " + of.name, TensorKind::parameter_gradient, of.shape);
  parameter_gradients_[parameter] = made;
  return made;
}

void NetworkBuilder::weight_gradient(const std::string& kind, const Op& forward, std::vector<TensorId> inputs,
                                     const std::vector<TensorId>& parameters, Flops work) {
  std::vector<TensorId> made;
  for (const TensorId parameter : parameters) made.push_back(parameter_gradient(parameter));
  op(kind, forward.name + " weight gradient", Phase::backward_weight, std::move(inputs), made.front(), work,
     forward.attributes);
  network_.graph.ops.back().outputs = made;
}

const Op& NetworkBuilder::reader(TensorId t, std::string_view kind) const {
  const auto found = std::ranges::find_if(network_.graph.ops, [&](const Op& op) {
    return op.kind == kind && std::ranges::find(op.inputs, t) != op.inputs.end();
  });
  EXPECTS(found != network_.graph.ops.end());
  return *found;
}

void NetworkBuilder::backward_of(const Op& forward) {
  const std::vector<TensorId>& in = forward.inputs;
  const TensorId out = forward.outputs[0];
  const Flops work = *forward.flops;
  const std::string& kind = forward.kind;
  if (kind == "cross_entropy") {
    return input_gradient("cross_entropy_gradient", forward, {out}, in[0], work);
  }
  if (kind == "lstm_cell") return;  // its gates do both
  if (kind == "lstm_gates") return backward_of_lstm_gates(forward);
  if (kind == "attention_scores") return backward_of_attention_scores(forward);
  const TensorId gradient = gradient_of(out);
  if (kind == "linear") {
    input_gradient("linear_input_gradient", forward, {gradient, in[1]}, in[0], work);
    return weight_gradient("linear_weight_gradient", forward, {in[0], gradient}, {in[1], in[2]}, work);
  }
  if (kind == "convolution") {
    input_gradient("convolution_input_gradient", forward, {gradient, in[1]}, in[0], work);
    return weight_gradient("convolution_weight_gradient", forward, {in[0], gradient}, {in[1]}, work);
  }
  if (kind == "batch_norm" || kind == "layer_norm") {
    input_gradient(kind + "_input_gradient", forward, {in[0], in[1], gradient}, in[0], work);
    return weight_gradient(kind + "_weight_gradient", forward, {in[0], gradient}, {in[1], in[2]}, work);
  }
  if (kind == "relu" || kind == "softmax") {
    return input_gradient(kind + "_gradient", forward, {out, gradient}, in[0], work);
  }
  if (kind == "gelu" || kind == "max_pool") {
    return input_gradient(kind + "_gradient", forward, {in[0], gradient}, in[0], work);
  }
  if (kind == "average_pool") return input_gradient("average_pool_gradient", forward, {gradient}, in[0], work);
  if (kind == "attention_values") {
    return input_gradient("attention_values_gradient", forward, {gradient, in[1]}, in[0], work);
  }
  if (kind == "embedding") {
    return weight_gradient("embedding_weight_gradient", forward, {in[0], gradient}, {in[1], in[2]}, work);
  }
  EXPECTS(kind == "add");
  for (const TensorId t : {in[0], in[1]}) {
    if (gradients_.contains(t)) {
      settle(t, gradient);
    } else {
      gradients_[t] = gradient;  // the same tensor: nothing is computed
    }
  }
}

/// The cell's backward goes to the gates first, then together with theirs to the state before.
void NetworkBuilder::backward_of_lstm_gates(const Op& forward) {
  const TensorId state = forward.inputs[0], weight = forward.inputs[1], bias = forward.inputs[2];
  const TensorId gates = forward.outputs[0];
  const TensorId gradient = gradient_of(reader(gates, "lstm_cell").outputs[0]);
  input_gradient("lstm_cell_gradient", forward, {gradient, gates, state}, gates, per_element(gates, 10));
  const TensorId of_gates = gradient_of(gates);
  input_gradient("lstm_state_gradient", forward, {of_gates, weight, gradient, gates, state}, state, *forward.flops);
  weight_gradient("lstm_weight_gradient", forward, {state, of_gates}, {weight, bias}, *forward.flops);
}

/// Query, key and value are one tensor, so their gradients are made together, from both products.
void NetworkBuilder::backward_of_attention_scores(const Op& forward) {
  const TensorId qkv = forward.inputs[0], scores = forward.outputs[0];
  const Op values = reader(qkv, "attention_values");
  const TensorId weights = values.inputs[0], of_mixed = gradient_of(values.outputs[0]);
  input_gradient("attention_qkv_gradient", forward, {gradient_of(scores), weights, of_mixed, qkv}, qkv,
                 Flops{3 * forward.flops->count});
}

}  // namespace plimsoll
