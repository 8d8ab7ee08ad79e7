#include "validate/networks/builders.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/core/names.h"
#include "sim/core/optimizer.h"
#include "validate/networks/backward_writer.h"

namespace plimsoll {
namespace {

TensorId residual_block(NetworkBuilder& net, const std::string& name, TensorId x, std::int64_t from, std::int64_t to,
                        std::int64_t stride) {
  TensorId y = net.convolution(name + ".conv1", x, to, 3, stride);
  y = net.relu(name + ".relu1", net.batch_norm(name + ".norm1", y));
  y = net.batch_norm(name + ".norm2", net.convolution(name + ".conv2", y, to, 3, 1));
  TensorId shortcut = x;
  if (from != to || stride != 1) {
    shortcut = net.batch_norm(name + ".norm3", net.convolution(name + ".conv3", x, to, 1, stride));
  }
  return net.relu(name + ".relu2", net.add(name + ".add", y, shortcut));
}

/// Of 4 `inner` channels.
TensorId bottleneck_block(NetworkBuilder& net, const std::string& name, TensorId x, std::int64_t from,
                          std::int64_t inner, std::int64_t stride) {
  const std::int64_t to = 4 * inner;
  TensorId y = net.batch_norm(name + ".norm1", net.convolution(name + ".conv1", x, inner, 1, 1));
  y = net.convolution(name + ".conv2", net.relu(name + ".relu1", y), inner, 3, stride);
  y = net.relu(name + ".relu2", net.batch_norm(name + ".norm2", y));
  y = net.batch_norm(name + ".norm3", net.convolution(name + ".conv3", y, to, 1, 1));
  TensorId shortcut = x;
  if (from != to || stride != 1) {
    shortcut = net.batch_norm(name + ".norm4", net.convolution(name + ".conv4", x, to, 1, stride));
  }
  return net.relu(name + ".relu3", net.add(name + ".add", y, shortcut));
}

}  // namespace

NetworkBuilder::NetworkBuilder(std::string name, StatedRates rates, SequenceSlice slice)
    : rates_(rates), slice_(slice) {
  network_.graph.name = std::move(name);
}

TensorId NetworkBuilder::forward(OpKind kind, const std::string& name, std::vector<TensorId> inputs,
                                 Attributes attributes) {
  Graph& graph = network_.graph;
  Op& op = add_op(graph, {kind, name, Phase::forward, stage_, std::move(inputs), {}, std::move(attributes)});
  op.outputs = {add_tensor(graph, name, TensorKind::activation, rule_of(kind).result(graph, op))};
  return op.outputs[0];
}

TensorId NetworkBuilder::input(Shape shape, std::string dtype) {
  return add_tensor(network_.graph, "input", TensorKind::input, std::move(shape), std::move(dtype));
}

void NetworkBuilder::begin_stage(std::string name, TensorId boundary) {
  stage_ = static_cast<std::uint32_t>(network_.stage_names.size());
  network_.stage_names.push_back(std::move(name));
  network_.boundaries.push_back(boundary);
}

TensorId NetworkBuilder::parameter(const std::string& name, Shape shape) {
  return add_tensor(network_.graph, name, TensorKind::parameter, std::move(shape));
}

TensorId NetworkBuilder::linear(const std::string& name, TensorId x, std::int64_t outputs,
                                const std::string& features) {
  const TensorId weight = parameter(name + ".weight", {shape(x).back(), outputs});
  return forward(OpKind::linear, name, {x, weight, parameter(name + ".bias", {outputs})}, {{"features", features}});
}

TensorId NetworkBuilder::convolution(const std::string& name, TensorId x, std::int64_t channels, std::int64_t kernel,
                                     std::int64_t stride) {
  const TensorId weight = parameter(name + ".weight", {kernel, kernel, shape(x)[3], channels});
  return forward(OpKind::convolution, name, {x, weight}, {{"stride", std::to_string(stride)}});
}

TensorId NetworkBuilder::batch_norm(const std::string& name, TensorId x) {
  const std::int64_t channels = shape(x).back();
  const TensorId scale = parameter(name + ".scale", {channels}), shift = parameter(name + ".shift", {channels});
  const std::string statistics = name + ".statistics";
  parameter(statistics, {2, channels});
  return forward(OpKind::batch_norm, name, {x, scale, shift}, {{statistics_attribute, statistics}});
}

TensorId NetworkBuilder::layer_norm(const std::string& name, TensorId x) {
  const std::int64_t channels = shape(x).back();
  const TensorId scale = parameter(name + ".scale", {channels}), shift = parameter(name + ".shift", {channels});
  return forward(OpKind::layer_norm, name, {x, scale, shift});
}

TensorId NetworkBuilder::relu(const std::string& name, TensorId x, const std::string& features) {
  return forward(OpKind::relu, name, {x}, {{"features", features}});
}

TensorId NetworkBuilder::gelu(const std::string& name, TensorId x, const std::string& features) {
  return forward(OpKind::gelu, name, {x}, {{"features", features}});
}

TensorId NetworkBuilder::max_pool(const std::string& name, TensorId x) {
  return forward(OpKind::max_pool, name, {x});
}

TensorId NetworkBuilder::average_pool(const std::string& name, TensorId x) {
  return forward(OpKind::average_pool, name, {x});
}

TensorId NetworkBuilder::add(const std::string& name, TensorId a, TensorId b) {
  return forward(OpKind::add, name, {a, b});
}

TensorId NetworkBuilder::embedding(const std::string& name, TensorId tokens, std::int64_t vocabulary,
                                   std::int64_t width) {
  const std::int64_t positions = shape(tokens)[1];
  const TensorId table = parameter(name + ".table", {vocabulary, width});
  return forward(OpKind::embedding, name,
                 {tokens, table, parameter(name + ".positions", {positions * slice_.count, width})},
                 place_in_sequence(positions));
}

/// Where the slice's `positions` begin in the whole sequence; a whole one has no place.
Attributes NetworkBuilder::place_in_sequence(std::int64_t positions) const {
  if (slice_.count == 1) return {};
  return {{first_position_attribute, std::to_string(slice_.index * positions)},
          {sequence_attribute, std::to_string(slice_.count * positions)}};
}

Attended NetworkBuilder::attended_slice(const std::string& name, TensorId own, std::uint32_t before) {
  const std::string of = before == 0 ? name : name + ", " + std::to_string(before) + " slices before";
  const auto like_own = [&](const std::string& text) {
    return add_tensor(network_.graph, text, TensorKind::activation, Shape(shape(own)));
  };
  const TensorId value = before == 0 ? own : like_own(of);
  network_.attended.push_back({value, like_own("gradients by later slices of " + of), stage_, before});
  return network_.attended.back();
}

TensorId NetworkBuilder::attention(const std::string& name, TensorId x, std::int64_t heads) {
  const std::int64_t width = shape(x)[2];
  Attributes split{{"heads", std::to_string(heads)}};
  const TensorId qkv = linear(name + ".qkv", x, 3 * width, "w a");
  std::vector<TensorId> values{qkv}, with_rooms{qkv};
  if (slice_.count > 1) {
    split.emplace_back(slices_attribute, std::to_string(slice_.count));
    with_rooms.push_back(attended_slice(name + ".qkv", qkv, 0).room);
    for (std::uint32_t before = slice_.index; before > 0; --before) {
      const Attended earlier = attended_slice(name + ".qkv", qkv, before);
      values.push_back(earlier.value);
      with_rooms.insert(with_rooms.end(), {earlier.value, earlier.room});
    }
  }
  const TensorId scores = forward(OpKind::attention_scores, name + ".scores", with_rooms, split);
  const TensorId weights = forward(OpKind::softmax, name + ".softmax", {scores});
  values.insert(values.begin(), weights);
  const TensorId mixed = forward(OpKind::attention_values, name + ".values", values, split);
  return linear(name + ".projection", mixed, width, "a w");
}

TensorId NetworkBuilder::fused_attention(const std::string& name, TensorId x, std::int64_t heads) {
  const Shape of = shape(x);
  const TensorId q = linear(name + ".query", x, of[2], "w a"), kv = linear(name + ".keys", x, 2 * of[2], "w a");
  const TensorId mixed = forward(OpKind::fused_attention, name + ".mix", {q, kv}, {{"heads", std::to_string(heads)}});
  const TensorId sums = add_tensor(network_.graph, name + ".sums", TensorKind::activation, {of[0], heads, of[1]});
  network_.graph.ops.back().outputs.push_back(sums);
  return linear(name + ".projection", mixed, of[2], "a w");
}

TensorId NetworkBuilder::lstm_cell(const std::string& name, TensorId state, TensorId weight, TensorId bias) {
  const TensorId gates = forward(OpKind::lstm_gates, name + ".gates", {state, weight, bias});
  return forward(OpKind::lstm_cell, name, {gates, state});
}

void NetworkBuilder::cross_entropy(TensorId logits) {
  begin_stage("loss", logits);
  forward(OpKind::cross_entropy, "probabilities", {logits},
          slice_.count == 1 ? Attributes{} : place_in_sequence(shape(logits)[1]));
}

Network NetworkBuilder::finish(const TrainingOptions& options) && {
  BackwardWriter backward(network_.graph);
  backward.write();
  if (options.updates != Optimizer::none) {
    const Optimizers optimizers{options.updates, options.groups};
    for (const auto& [parameter, gradient] : backward.parameter_gradients()) {
      const Optimizer by = optimizers.of(network_.graph[parameter].name);
      add_update(parameter, gradient, by);
    }
  }
  state_costs(network_.graph, rates_);
  return std::move(network_);
}

/// An update reads parameter, gradient and states, in that order, and overwrites all but the gradient.
void NetworkBuilder::add_update(TensorId parameter, TensorId gradient, Optimizer optimizer) {
  Graph& graph = network_.graph;
  const Tensor of = graph[parameter];
  std::vector<TensorId> inputs{parameter, gradient}, mutates{parameter};
  for (std::int64_t s = 0; s < optimizer_states(optimizer); ++s) {
    const std::string name = "state " + std::to_string(s) + " of " + of.name;
    inputs.push_back(add_tensor(graph, name, TensorKind::optimizer_state, of.shape));
    mutates.push_back(inputs.back());
  }
  Op& update = add_op(graph, {OpKind::optimizer,
                              "update of " + of.name,
                              Phase::update,
                              0,
                              std::move(inputs),
                              {},
                              {{"optimizer", std::string(written(optimizer))}}});
  update.mutates = std::move(mutates);
  update.recomputable = false;
}

void state_costs(Graph& graph, const StatedRates& rates) {
  for (Op& op : graph.ops) {
    const OpRule& rule = rule_of(op);
    op.flops = rule.flops(graph, op);
    op.bytes_moved = rule.bytes_moved(graph, op);
    op.duration = std::max(*op.flops / rates.flops, *op.bytes_moved / rates.bytes);
  }
}

Network mlp(const MlpSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("mlp", options.rates);
  TensorId x = net.input({sizes.batch, sizes.width}, "fp32");
  for (std::uint32_t i = 0; i < sizes.layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const bool is_last = i + 1 == sizes.layers;
    net.begin_stage(name, x);
    // Two layers are a block: the first makes its inner numbers, the second reads them.
    const std::string from = i % 2 == 0 ? "w" : "f", to = i % 2 == 0 ? "f" : "w";
    x = net.linear(name, x, is_last ? sizes.classes : sizes.width, from + (is_last ? " v" : " " + to));
    if (!is_last) x = net.relu(name + ".relu", x, to);
  }
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

Network resnet(const ResnetSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("resnet", options.rates);
  TensorId x = net.input({sizes.batch, sizes.picture, sizes.picture, sizes.colors}, "fp32");
  net.begin_stage("stem", x);
  x = net.relu("stem.relu", net.batch_norm("stem.norm", net.convolution("stem.conv", x, sizes.channels, 7, 2)));
  x = net.max_pool("stem.pool", x);
  const bool is_bottleneck = sizes.block == static_cast<std::uint32_t>(ResidualBlock::bottleneck);
  std::int64_t channels = sizes.channels, inner = channels;
  for (std::uint32_t b = 0; b < sizes.blocks; ++b) {
    const std::string name = "block" + std::to_string(b);
    const bool shrinks = b > 0 && b % 2 == 0;
    net.begin_stage(name, x);
    if (shrinks) inner *= 2;
    const auto block = is_bottleneck ? bottleneck_block : residual_block;
    x = block(net, name, x, channels, inner, shrinks ? 2 : 1);
    channels = is_bottleneck ? 4 * inner : inner;
  }
  net.begin_stage("head", x);
  x = net.linear("head.linear", net.average_pool("head.pool", x), sizes.classes);
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

Network gpt(const GptSizes& sizes, const TrainingOptions& options, SequenceSlice slice) {
  NetworkBuilder net("gpt", options.rates, slice);
  const std::int64_t width = sizes.width;
  TensorId x = net.input({sizes.batch, sizes.sequence / slice.count}, "int32");
  net.begin_stage("embedding", x);
  x = net.embedding("embedding", x, sizes.vocabulary, width);
  for (std::uint32_t l = 0; l < sizes.layers; ++l) {
    const std::string attention = "layer" + std::to_string(l) + ".attention",
                      mlp = "layer" + std::to_string(l) + ".mlp";
    net.begin_stage(attention, x);
    const TensorId normed = net.layer_norm(attention + ".norm", x);
    const bool is_fused = sizes.attention == static_cast<std::uint32_t>(GptAttention::fused);
    const TensorId attended =
        is_fused ? net.fused_attention(attention, normed, sizes.heads) : net.attention(attention, normed, sizes.heads);
    x = net.add(attention + ".add", attended, x);
    net.begin_stage(mlp, x);
    const TensorId wide = net.linear(mlp + ".expand", net.layer_norm(mlp + ".norm", x), 4 * width, "w f");
    x = net.add(mlp + ".add", net.linear(mlp + ".contract", net.gelu(mlp + ".gelu", wide, "f"), width, "f w"), x);
  }
  net.begin_stage("head", x);
  x = net.linear("head.linear", net.layer_norm("head.norm", x), sizes.vocabulary, "w v");
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

Network lstm(const LstmSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("lstm", options.rates);
  const std::int64_t width = sizes.width;
  TensorId x = net.input({sizes.batch, 2 * width}, "fp32");
  const TensorId weight = net.parameter("cell.weight", {width, 4 * width});
  const TensorId bias = net.parameter("cell.bias", {4 * width});
  for (std::uint32_t s = 0; s < sizes.steps; ++s) {
    const std::string name = "step" + std::to_string(s);
    net.begin_stage(name, x);
    x = net.lstm_cell(name, x, weight, bias);
  }
  net.begin_stage("head", x);
  x = net.linear("head", x, sizes.classes);
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

}  // namespace plimsoll
