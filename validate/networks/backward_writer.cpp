#include "validate/networks/backward_writer.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "validate/networks/graph_writing.h"

namespace plimsoll {
namespace {

/// Those of the forward, and whose gradient it is (traces/graph.md, "Loops").
Attributes attributes_of(const Op& forward) {
  Attributes attributes = forward.attributes;
  attributes.emplace_back("of", forward.name);
  return attributes;
}

}  // namespace

void BackwardWriter::write() {
  const std::vector<Op> forwards = graph_.ops;
  EXPECTS(!forwards.empty() && network_kind(forwards.back().kind) == OpKind::cross_entropy);
  for (std::size_t i = forwards.size(); i-- > 0;) {
    stage_ = forwards[i].stage;
    rule_of(forwards[i]).backward(*this, forwards[i]);
  }
}

/// The tensor that a new contribution to the gradient of `of` goes to; `settle` then adds it to those before.
TensorId BackwardWriter::new_gradient(TensorId of) {
  const Tensor tensor = graph_[of];
  const std::uint32_t before = contributions_[of]++;
  const std::string suffix = before == 0 ? "" : " (" + std::to_string(before + 1) + ")";
  return add_tensor(graph_, "gradient of " + tensor.name + suffix, TensorKind::gradient, tensor.shape);
}

void BackwardWriter::settle(TensorId of, TensorId contribution) {
  const auto [place, is_first] = gradients_.try_emplace(of, contribution);
  if (is_first) return;
  const Tensor tensor = graph_[of];
  const std::string name = "sum of gradients of " + tensor.name;
  const TensorId sum = add_tensor(graph_, name, TensorKind::gradient, tensor.shape);
  const std::vector<TensorId> summands{place->second, contribution};
  add_op(graph_, {OpKind::add, name, Phase::backward_input, stage_, summands, {sum}});
  place->second = sum;
}

void BackwardWriter::pass_on(TensorId gradient, TensorId of) {
  if (gradients_.contains(of)) return settle(of, gradient);
  gradients_[of] = gradient;
}

void BackwardWriter::input_gradient(OpKind kind, const Op& forward, std::vector<TensorId> inputs, TensorId of) {
  if (graph_[of].kind == TensorKind::input) return;
  input_gradients(kind, forward, std::move(inputs), {of});
}

void BackwardWriter::input_gradients(OpKind kind, const Op& forward, std::vector<TensorId> inputs,
                                     const std::vector<TensorId>& of) {
  std::vector<TensorId> made;
  for (const TensorId t : of) made.push_back(new_gradient(t));
  add_op(graph_, {kind, forward.name + " input gradient", Phase::backward_input, stage_, std::move(inputs), made,
                  attributes_of(forward)});
  for (std::size_t k = 0; k < of.size(); ++k) settle(of[k], made[k]);
}

TensorId BackwardWriter::parameter_gradient(TensorId parameter) {
  const auto found = parameter_gradients_.find(parameter);
  if (found != parameter_gradients_.end()) return found->second;
  const Tensor of = graph_[parameter];
  const TensorId made = add_tensor(graph_, "gradient of " + of.name, TensorKind::parameter_gradient, of.shape);
  parameter_gradients_[parameter] = made;
  return made;
}

void BackwardWriter::weight_gradient(OpKind kind, const Op& forward, std::vector<TensorId> inputs,
                                     const std::vector<TensorId>& parameters) {
  std::vector<TensorId> made;
  for (const TensorId parameter : parameters) made.push_back(parameter_gradient(parameter));
  add_op(graph_, {kind, forward.name + " weight gradient", Phase::backward_weight, stage_, std::move(inputs),
                  std::move(made), attributes_of(forward)});
}

const Op& BackwardWriter::reader(TensorId t, OpKind kind) const {
  const auto found = std::ranges::find_if(graph_.ops, [&](const Op& op) {
    return network_kind(op.kind) == kind && std::ranges::find(op.inputs, t) != op.inputs.end();
  });
  EXPECTS(found != graph_.ops.end());
  return *found;
}

}  // namespace plimsoll
