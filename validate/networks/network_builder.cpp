#include "validate/networks/network_builder.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/optimizer.h"

namespace plimsoll {
namespace {

using Attributes = std::vector<std::pair<std::string, std::string>>;

double product_of(const std::vector<std::int64_t>& shape) {
  double all = 1;
  for (const std::int64_t n : shape) all *= static_cast<double>(n);
  return all;
}

std::int64_t halved(std::int64_t size, std::int64_t stride) {
  return (size + stride - 1) / stride;
}

}  // namespace

NetworkBuilder::NetworkBuilder(std::string name, StatedRates rates) : rates_(rates) {
  network_.graph.name = std::move(name);
}

std::int64_t NetworkBuilder::elements(TensorId t) const {
  std::int64_t all = 1;
  for (const std::int64_t n : network_.graph[t].shape) all *= n;
  return all;
}

TensorId NetworkBuilder::tensor(std::string name, TensorKind kind, Shape shape, std::string dtype) {
  Graph& graph = network_.graph;
  const auto bytes = static_cast<std::int64_t>(product_of(shape)) * 4;  // fp32 and int32
  graph.tensors.push_back({.name = std::move(name),
                           .kind = kind,
                           .bytes = Bytes{bytes},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = std::move(shape),
                           .dtype = std::move(dtype)});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

TensorId NetworkBuilder::op(std::string kind, const std::string& name, Phase phase, std::vector<TensorId> inputs,
                            TensorId output, Flops work, Attributes attributes) {
  network_.graph.ops.push_back({.name = name,
                                .kind = std::move(kind),
                                .phase = phase,
                                .stage = stage_,
                                .duration = {},
                                .nograd_duration = {},
                                .flops = work,
                                .bytes_moved = {},
                                .workspace = {},
                                .nograd_workspace = {},
                                .accumulate_workspace = {},
                                .inputs = std::move(inputs),
                                .outputs = {output},
                                .saved = {},
                                .mutates = {},
                                .recomputable = true,
                                .alternatives = {},
                                .attributes = std::move(attributes)});
  return output;
}

TensorId NetworkBuilder::forward(const std::string& kind, const std::string& name, std::vector<TensorId> inputs,
                                 Shape shape, Flops work, Attributes attributes) {
  const TensorId made = tensor(name, TensorKind::activation, std::move(shape));
  return op(kind, name, Phase::forward, std::move(inputs), made, work, std::move(attributes));
}

TensorId NetworkBuilder::input(Shape shape, std::string dtype) {
  return tensor("input", TensorKind::input, std::move(shape), std::move(dtype));
}

void NetworkBuilder::begin_stage(std::string name, TensorId boundary) {
  stage_ = static_cast<std::uint32_t>(network_.stage_names.size());
  network_.stage_names.push_back(std::move(name));
  network_.boundaries.push_back(boundary);
}

TensorId NetworkBuilder::parameter(const std::string& name, Shape shape) {
  return tensor(name, TensorKind::parameter, std::move(shape));
}

TensorId NetworkBuilder::linear(const std::string& name, TensorId x, TensorId weight, TensorId bias) {
  Shape result = shape(x);
  result.back() = shape(weight)[1];
  const Flops work{2 * product_of(result) * static_cast<double>(shape(weight)[0])};
  return forward("linear", name, {x, weight, bias}, std::move(result), work);
}

TensorId NetworkBuilder::linear(const std::string& name, TensorId x, std::int64_t outputs) {
  const TensorId weight = parameter(name + ".weight", {shape(x).back(), outputs});
  return linear(name, x, weight, parameter(name + ".bias", {outputs}));
}

TensorId NetworkBuilder::convolution(const std::string& name, TensorId x, std::int64_t channels, std::int64_t kernel,
                                     std::int64_t stride) {
  const Shape from = shape(x);
  const TensorId weight = parameter(name + ".weight", {kernel, kernel, from[3], channels});
  Shape result{from[0], halved(from[1], stride), halved(from[2], stride), channels};
  const Flops work{2 * product_of(result) * static_cast<double>(kernel * kernel * from[3])};
  return forward("convolution", name, {x, weight}, std::move(result), work, {{"stride", std::to_string(stride)}});
}

TensorId NetworkBuilder::batch_norm(const std::string& name, TensorId x) {
  const std::int64_t channels = shape(x).back();
  const TensorId scale = parameter(name + ".scale", {channels}), shift = parameter(name + ".shift", {channels});
  const std::string statistics = name + ".statistics";
  parameter(statistics, {2, channels});
  return forward("batch_norm", name, {x, scale, shift}, shape(x), per_element(x, 8),
                 {{statistics_attribute, statistics}});
}

TensorId NetworkBuilder::layer_norm(const std::string& name, TensorId x) {
  const std::int64_t channels = shape(x).back();
  const TensorId scale = parameter(name + ".scale", {channels}), shift = parameter(name + ".shift", {channels});
  return forward("layer_norm", name, {x, scale, shift}, shape(x), per_element(x, 8));
}

TensorId NetworkBuilder::relu(const std::string& name, TensorId x) {
  return forward("relu", name, {x}, shape(x), per_element(x, 1));
}

TensorId NetworkBuilder::gelu(const std::string& name, TensorId x) {
  return forward("gelu", name, {x}, shape(x), per_element(x, 20));
}

TensorId NetworkBuilder::max_pool(const std::string& name, TensorId x) {
  const Shape from = shape(x);
  return forward("max_pool", name, {x}, {from[0], halved(from[1], 2), halved(from[2], 2), from[3]}, per_element(x, 3));
}

TensorId NetworkBuilder::average_pool(const std::string& name, TensorId x) {
  return forward("average_pool", name, {x}, {shape(x)[0], shape(x)[3]}, per_element(x, 1));
}

TensorId NetworkBuilder::add(const std::string& name, TensorId a, TensorId b) {
  return forward("add", name, {a, b}, shape(a), per_element(a, 1));
}

TensorId NetworkBuilder::embedding(const std::string& name, TensorId tokens, std::int64_t vocabulary,
                                   std::int64_t width) {
  const Shape from = shape(tokens);
  const TensorId table = parameter(name + ".table", {vocabulary, width});
  const TensorId positions = parameter(name + ".positions", {from[1], width});
  const Flops work{static_cast<double>(elements(tokens) * width)};
  return forward("embedding", name, {tokens, table, positions}, {from[0], from[1], width}, work);
}

TensorId NetworkBuilder::attention(const std::string& name, TensorId x, std::int64_t heads) {
  const Shape from = shape(x);
  const std::int64_t batch = from[0], sequence = from[1], width = from[2];
  const Attributes split{{"heads", std::to_string(heads)}};
  const TensorId qkv = linear(name + ".qkv", x, 3 * width);
  const Flops product_work{2 * static_cast<double>(batch * sequence * sequence * width)};
  const TensorId scores =
      forward("attention_scores", name + ".scores", {qkv}, {batch, heads, sequence, sequence}, product_work, split);
  const TensorId weights = forward("softmax", name + ".softmax", {scores}, shape(scores), per_element(scores, 5));
  const TensorId mixed =
      forward("attention_values", name + ".values", {weights, qkv}, {batch, sequence, width}, product_work, split);
  return linear(name + ".projection", mixed, width);
}

TensorId NetworkBuilder::lstm_cell(const std::string& name, TensorId state, TensorId weight, TensorId bias) {
  const std::int64_t batch = shape(state)[0], width = shape(weight)[0];
  const Flops work{8 * static_cast<double>(batch * width * width)};
  const TensorId gates = forward("lstm_gates", name + ".gates", {state, weight, bias}, {batch, 4 * width}, work);
  return forward("lstm_cell", name, {gates, state}, shape(state), per_element(gates, 8));
}

void NetworkBuilder::cross_entropy(TensorId logits) {
  begin_stage("loss", logits);
  forward("cross_entropy", "probabilities", {logits}, shape(logits), per_element(logits, 5));
}

Network NetworkBuilder::finish(Optimizer optimizer) && {
  const std::vector<Op> forwards = network_.graph.ops;
  EXPECTS(!forwards.empty() && forwards.back().kind == "cross_entropy");
  for (std::size_t i = forwards.size(); i-- > 0;) {
    stage_ = forwards[i].stage;
    backward_of(forwards[i]);
  }
  if (optimizer != Optimizer::none) {
    for (const auto& [parameter, gradient] : parameter_gradients_) add_update(parameter, optimizer);
  }
  state_times();
  return std::move(network_);
}

/// An update reads parameter, gradient and states, in that order, and overwrites all but the gradient.
void NetworkBuilder::add_update(TensorId parameter, Optimizer optimizer) {
  const Tensor of = network_.graph[parameter];
  std::vector<TensorId> inputs{parameter, parameter_gradients_.at(parameter)}, mutates{parameter};
  for (std::int64_t s = 0; s < optimizer_states(optimizer); ++s) {
    const TensorId state =
        tensor("state " + std::to_string(s) + " of " + of.name, TensorKind::optimizer_state, of.shape);
    inputs.push_back(state);
    mutates.push_back(state);
  }
  stage_ = 0;
  op("optimizer", "update of " + of.name, Phase::update, std::move(inputs), parameter, Flops{0},
     {{"optimizer", std::string(written(optimizer))}});
  Op& update = network_.graph.ops.back();
  update.outputs.clear();
  update.mutates = std::move(mutates);
  update.recomputable = false;
  update.bytes_moved = optimizer_moves(optimizer) * of.bytes;
}

/// Traffic: every input and output once. Time: the slower of work and traffic at the stated rates.
void NetworkBuilder::state_times() {
  for (Op& op : network_.graph.ops) {
    if (!op.bytes_moved) {
      Bytes traffic;
      for (const TensorId t : op.inputs) traffic += network_.graph[t].bytes;
      for (const TensorId t : op.outputs) traffic += network_.graph[t].bytes;
      op.bytes_moved = traffic;
    }
    op.duration = std::max(*op.flops / rates_.flops, *op.bytes_moved / rates_.bytes);
  }
}

}  // namespace plimsoll
