#include "traces/imports/eager_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::int64_t bytes_of_number = 4, bytes_of_index = 8, bytes_of_bf16 = 2;

std::int64_t count(const EagerGraph::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t bytes_of_a_number(const Tensor& tensor) {
  return tensor.dtype == "bfloat16" ? bytes_of_bf16 : bytes_of_number;
}

}  // namespace

EagerGraph::EagerGraph(std::string name, std::string_view dtype, bool channels_last)
    : is_mixed_(dtype == "amp"), is_channels_last_(channels_last) {
  graph_.name = std::move(name);
  graph_.source.dtype = is_mixed_ ? "bf16" : dtype;
}

// --- tensors and ops

TensorId EagerGraph::tensor(const std::string& name, TensorKind kind, Shape shape, std::optional<StorageId> storage,
                            std::int64_t each) {
  const Bytes bytes{each * count(shape)};
  graph_.tensors.push_back({.name = name,
                            .kind = kind,
                            .bytes = bytes,
                            .storage = storage ? *storage : id_at<StorageId>(graph_.storages++),
                            .shape = std::move(shape),
                            .dtype = each == bytes_of_bf16     ? "bfloat16"
                                     : each == bytes_of_number ? "float32"
                                                               : "int64"});
  needs_gradient_.push_back(kind != TensorKind::input);
  return id_at<TensorId>(graph_.tensors.size() - 1);
}

TensorId EagerGraph::input(Shape shape) {
  return tensor("input", TensorKind::input, std::move(shape));
}

TensorId EagerGraph::parameter(const std::string& name, Shape shape) {
  return tensor(stage_name_ + "." + name + "." + std::to_string(graph_.tensors.size()), TensorKind::parameter,
                std::move(shape));
}

TensorId EagerGraph::value(Shape shape) {
  return tensor(stage_name_ + ".value." + std::to_string(graph_.tensors.size()), TensorKind::activation,
                std::move(shape));
}

TensorId EagerGraph::value_like(TensorId t, Shape shape, std::optional<StorageId> storage) {
  return tensor(stage_name_ + ".value." + std::to_string(graph_.tensors.size()), TensorKind::activation,
                std::move(shape), storage, bytes_of_a_number(graph_[t]));
}

TensorId EagerGraph::gradient_like(TensorId t) {
  return tensor("gradient of " + graph_[t].name, TensorKind::gradient, shape(t), {}, bytes_of_a_number(graph_[t]));
}

TensorId EagerGraph::gradient_of_parameter(TensorId t) {
  const TensorId made = tensor("gradient of " + graph_[t].name, TensorKind::parameter_gradient, shape(t));
  graph_.tensors[made.index].gradient_of = t;
  return made;
}

TensorId EagerGraph::gradient_of_weight(TensorId t) {
  if (graph_[t].kind == TensorKind::parameter) return gradient_of_parameter(t);
  const TensorId made = gradient_like(t);
  contribute(t, made);
  return made;
}

TensorId EagerGraph::converted(TensorId x, std::int64_t each) {
  if (bytes_of_a_number(graph_[x]) == each) return x;
  const TensorId y = tensor(graph_[x].name + (each == bytes_of_bf16 ? " in bf16" : " in fp32"), TensorKind::activation,
                            shape(x), {}, each);
  needs_gradient_[y.index] = needs_gradient(x);
  op({.kind = "_to_copy", .inputs = {x}, .outputs = {y}});
  if (!needs_gradient(x)) return y;
  backward(y, [this, x, y] {
    const bool is_parameter = graph_[x].kind == TensorKind::parameter;
    const TensorId gx = is_parameter ? gradient_of_parameter(x) : gradient_like(x);
    op({.kind = "_to_copy", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gx}});
    if (!is_parameter) contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::narrowed(TensorId x) {
  return is_mixed_ ? converted(x, bytes_of_bf16) : x;
}

void EagerGraph::next_stage(std::string name) {
  stage_ += stage_name_.empty() ? 0 : 1;
  stage_name_ = std::move(name);
}

void EagerGraph::op(Made made) {
  std::int64_t moved = made.more_bytes;
  for (const auto* list : {&made.inputs, &made.outputs}) {
    for (const TensorId t : *list) moved += graph_[t].bytes.count;
  }
  graph_.ops.push_back({.name = stage_name_ + "." + made.kind + "." + std::to_string(graph_.ops.size()),
                        .kind = std::move(made.kind),
                        .phase = made.phase,
                        .stage = stage_,
                        .flops = Flops{made.flops},
                        .bytes_moved = Bytes{moved},
                        .inputs = std::move(made.inputs),
                        .outputs = std::move(made.outputs),
                        .saved = std::move(made.saved),
                        .mutates = std::move(made.mutates),
                        .attributes = std::move(made.attributes)});
}

void EagerGraph::contribute(TensorId to, TensorId gradient) {
  if (!needs_gradient(to)) return;
  const auto [place, is_first] = gradients_.try_emplace(to.index, gradient);
  if (is_first) return;
  const TensorId sum = gradient_like(to);
  op({.kind = "add", .phase = Phase::backward, .inputs = {place->second, gradient}, .outputs = {sum}});
  place->second = sum;
}

void EagerGraph::backward(TensorId of, std::function<void()> made) {
  backwards_.emplace_back(of, [this, made = std::move(made), name = stage_name_, stage = stage_] {
    stage_name_ = name;
    stage_ = stage;
    made();
  });
}

// --- layers

TensorId EagerGraph::convolution(TensorId x, std::int64_t channels, Window window, bool bias) {
  const Shape in = shape(x);
  const auto size = [&](std::int64_t n) { return (n + 2 * window.padding - window.kernel) / window.stride + 1; };
  const TensorId weight = narrowed(parameter("weight", {channels, in[1], window.kernel, window.kernel}));
  x = narrowed(x);
  std::vector<TensorId> inputs{x, weight};
  if (bias) inputs.push_back(narrowed(parameter("bias", {channels})));
  const TensorId y = value_like(x, {in[0], channels, size(in[2]), size(in[3])});
  const double flops =
      2.0 * static_cast<double>(count(shape(y))) * static_cast<double>(in[1] * window.kernel * window.kernel);
  const Attributes layout = is_channels_last_ ? Attributes{{"memory_format", "channels_last"}} : Attributes{};
  op({.kind = "convolution", .inputs = inputs, .outputs = {y}, .flops = flops, .attributes = layout});
  backward(y, [this, x, inputs, y, flops, layout] {
    Made made{.kind = "convolution_backward",
              .phase = Phase::backward,
              .inputs = {gradient(y), x, inputs[1]},
              .attributes = layout};
    if (needs_gradient(x)) made.outputs.push_back(gradient_like(x));
    for (std::size_t p = 1; p < inputs.size(); ++p) made.outputs.push_back(gradient_of_weight(inputs[p]));
    made.flops = needs_gradient(x) ? 2 * flops : flops;
    const TensorId first = made.outputs.front();
    op(std::move(made));
    contribute(x, first);
  });
  return y;
}

TensorId EagerGraph::batch_norm(TensorId x) {
  const std::int64_t channels = shape(x)[1];
  const TensorId weight = parameter("weight", {channels}), bias = parameter("bias", {channels});
  const TensorId y = value_like(x, shape(x)), mean = value({channels}), deviation = value({channels});
  const std::int64_t statistics = 2 * bytes_of_number * channels;  // running ones
  op({.kind = "native_batch_norm",
      .inputs = {x, weight, bias},
      .outputs = {y, mean, deviation},
      .saved = {mean, deviation},
      .more_bytes = statistics});
  backward(y, [this, x, weight, bias, y, mean, deviation, statistics] {
    const TensorId gx = gradient_like(x), gw = gradient_of_parameter(weight), gb = gradient_of_parameter(bias);
    op({.kind = "native_batch_norm_backward",
        .phase = Phase::backward,
        .inputs = {gradient(y), x, weight, mean, deviation},
        .outputs = {gx, gw, gb},
        .more_bytes = statistics});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::layer_norm(TensorId x) {
  const std::int64_t width = shape(x).back();
  Shape rows = shape(x);
  rows.back() = 1;
  const TensorId weight = parameter("weight", {width}), bias = parameter("bias", {width});
  const TensorId y = value(shape(x)), mean = value(rows), deviation = value(rows);
  op({.kind = "native_layer_norm",
      .inputs = {x, weight, bias},
      .outputs = {y, mean, deviation},
      .saved = {mean, deviation}});
  backward(y, [this, x, weight, bias, y, mean, deviation] {
    const TensorId gx = gradient_like(x), gw = gradient_of_parameter(weight), gb = gradient_of_parameter(bias);
    op({.kind = "native_layer_norm_backward",
        .phase = Phase::backward,
        .inputs = {gradient(y), x, mean, deviation, weight, bias},
        .outputs = {gx, gw, gb}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::relu_in_place(TensorId x) {
  const TensorId y = value_like(x, shape(x), graph_[x].storage);
  op({.kind = "relu_", .inputs = {x}, .outputs = {y}, .mutates = {x}});
  backward(y, [this, x, y] {
    const TensorId gx = gradient_like(x);
    op({.kind = "threshold_backward", .phase = Phase::backward, .inputs = {gradient(y), y}, .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::unary(TensorId x, const std::string& kind, const std::string& backward_kind, bool keeps_result) {
  const TensorId y = value(shape(x));
  op({.kind = kind, .inputs = {x}, .outputs = {y}});
  backward(y, [this, x, y, backward_kind, keeps_result] {
    const TensorId gx = gradient_like(x);
    op({.kind = backward_kind,
        .phase = Phase::backward,
        .inputs = {gradient(y), keeps_result ? y : x},
        .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::gelu(TensorId x) {
  return unary(x, "gelu", "gelu_backward", false);
}

TensorId EagerGraph::softmax(TensorId x) {
  return unary(x, "_softmax", "_softmax_backward_data", true);
}

TensorId EagerGraph::scaled(TensorId x) {
  const TensorId y = value(shape(x));
  op({.kind = "mul", .inputs = {x}, .outputs = {y}});
  backward(y, [this, x, y] {
    const TensorId gx = gradient_like(x);
    op({.kind = "mul", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::max_pool(TensorId x, Window window) {
  const Shape in = shape(x);
  const auto size = [&](std::int64_t n) { return (n + 2 * window.padding - window.kernel) / window.stride + 1; };
  const Shape out{in[0], in[1], size(in[2]), size(in[3])};
  const TensorId y = value_like(x, out);
  const TensorId where = tensor(graph_[y].name + " places", TensorKind::activation, out, {}, bytes_of_index);
  op({.kind = "max_pool2d_with_indices", .inputs = {x}, .outputs = {y, where}, .saved = {where}});
  backward(y, [this, x, y, where] {
    const TensorId gx = gradient_like(x);
    op({.kind = "max_pool2d_with_indices_backward",
        .phase = Phase::backward,
        .inputs = {gradient(y), x, where},
        .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::add_in_place(TensorId where, TensorId other) {
  const TensorId y = value_like(where, shape(where), graph_[where].storage);
  op({.kind = "add_", .inputs = {where, other}, .outputs = {y}, .mutates = {where}});
  backward(y, [this, where, other, y] {
    contribute(where, gradient(y));
    contribute(other, gradient(y));
  });
  return y;
}

TensorId EagerGraph::add(TensorId a, TensorId b) {
  const TensorId y = value(shape(a));
  op({.kind = "add", .inputs = {a, b}, .outputs = {y}});
  backward(y, [this, a, b, y] {
    contribute(a, gradient(y));
    contribute(b, gradient(y));
  });
  return y;
}

TensorId EagerGraph::add_parameter(TensorId x, const std::string& name) {
  Shape one = shape(x);
  one[0] = 1;
  const TensorId weight = parameter(name, one), y = value(shape(x));
  op({.kind = "add", .inputs = {x, weight}, .outputs = {y}});
  backward(y, [this, x, weight, y] {
    op({.kind = "sum", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gradient_of_parameter(weight)}});
    contribute(x, gradient(y));
  });
  return y;
}

TensorId EagerGraph::times_columns(TensorId x, const std::string& name) {
  const TensorId weight = parameter(name, {shape(x).back()}), y = value(shape(x));
  op({.kind = "mul", .inputs = {weight, x}, .outputs = {y}});
  backward(y, [this, x, weight, y] {
    const TensorId gx = gradient_like(x), products = gradient_like(x);
    op({.kind = "mul", .phase = Phase::backward, .inputs = {gradient(y), weight}, .outputs = {gx}});
    op({.kind = "mul", .phase = Phase::backward, .inputs = {gradient(y), x}, .outputs = {products}});
    op({.kind = "sum", .phase = Phase::backward, .inputs = {products}, .outputs = {gradient_of_parameter(weight)}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::add_columns(TensorId x, const std::string& name) {
  const TensorId weight = parameter(name, {shape(x).back()}), y = value(shape(x));
  op({.kind = "add", .inputs = {x, weight}, .outputs = {y}});
  backward(y, [this, x, weight, y] {
    op({.kind = "sum", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gradient_of_parameter(weight)}});
    contribute(x, gradient(y));
  });
  return y;
}

TensorId EagerGraph::mean(TensorId x) {
  const bool of_pixels = shape(x).size() == 4;
  const TensorId y = value_like(x, of_pixels ? Shape{shape(x)[0], shape(x)[1], 1, 1} : Shape{shape(x)[0], shape(x)[2]});
  op({.kind = "mean", .inputs = {x}, .outputs = {y}});
  backward(y, [this, x, y] {
    const TensorId gx = gradient_like(x);
    op({.kind = "div", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::product(TensorId x, Shape result, std::int64_t rows, bool bias, bool of_first_row) {
  const std::int64_t columns = result.back();
  const Shape in = shape(x);
  const std::int64_t inner = in.size() == 4 ? in[1] : in.back();
  const TensorId whole_weight = parameter("weight", {columns, inner});
  std::vector<TensorId> inputs;
  if (bias) inputs.push_back(narrowed(parameter("bias", {columns})));
  const TensorId weight = narrowed(whole_weight);
  inputs.insert(inputs.end(), {x, weight});
  const TensorId y = value_like(x, std::move(result));
  const double flops = 2.0 * static_cast<double>(rows * inner * columns);
  const std::int64_t unread = of_first_row ? bytes_of_number * (count(in) - rows * inner) : 0;
  op({.kind = bias ? "addmm" : "mm", .inputs = inputs, .outputs = {y}, .flops = flops, .more_bytes = -unread});
  backward(y, [=, this] {
    const TensorId gy = gradient(y);
    const TensorId gx = of_first_row
                            ? tensor("gradient of rows of " + graph_[x].name, TensorKind::gradient, {rows, inner})
                            : tensor("gradient of " + graph_[x].name, TensorKind::gradient, {rows, inner}, {},
                                     bytes_of_a_number(graph_[x]));
    op({.kind = "mm", .phase = Phase::backward, .inputs = {gy, weight}, .outputs = {gx}, .flops = flops});
    op({.kind = "mm",
        .phase = Phase::backward,
        .inputs = {gy, x},
        .outputs = {gradient_of_weight(weight)},
        .flops = flops,
        .more_bytes = -unread});
    if (bias) {
      op({.kind = "sum", .phase = Phase::backward, .inputs = {gy}, .outputs = {gradient_of_weight(inputs[0])}});
    }
    if (!of_first_row) return contribute(x, gx);
    const TensorId all = gradient_like(x);
    op({.kind = "select_backward", .phase = Phase::backward, .inputs = {gx}, .outputs = {all}});
    contribute(x, all);
  });
  return y;
}

TensorId EagerGraph::linear(TensorId x, std::int64_t columns, bool bias) {
  const Shape in = shape(x);
  Shape out = in.size() == 4 ? Shape{in[0], columns} : in;  // of what `mean` makes
  out.back() = columns;
  return product(x, out, count(out) / columns, bias, false);
}

TensorId EagerGraph::linear_of_first_row(TensorId x, std::int64_t columns) {
  return product(x, {shape(x)[0], columns}, shape(x)[0], true, true);
}

TensorId EagerGraph::batched(TensorId a, TensorId b, bool transposed) {
  const Shape left = shape(a), right = shape(b);
  EXPECTS(left.size() == 3 && right.size() == 3 && left[0] == right[0] && left[2] == right[transposed ? 2 : 1]);
  const TensorId y = value({left[0], left[1], right[transposed ? 1 : 2]});
  const double flops = 2.0 * static_cast<double>(count(left) * shape(y)[2]);
  op({.kind = "bmm", .inputs = {a, b}, .outputs = {y}, .flops = flops});
  backward(y, [this, a, b, y, flops] {
    const TensorId ga = gradient_like(a), gb = gradient_like(b);
    op({.kind = "bmm", .phase = Phase::backward, .inputs = {a, gradient(y)}, .outputs = {gb}, .flops = flops});
    op({.kind = "bmm", .phase = Phase::backward, .inputs = {gradient(y), b}, .outputs = {ga}, .flops = flops});
    contribute(b, gb);
    contribute(a, ga);
  });
  return y;
}

TensorId EagerGraph::copied(TensorId x, Shape to) {
  EXPECTS(count(to) == count(shape(x)));
  const TensorId y = value(std::move(to));
  op({.kind = "clone", .inputs = {x}, .outputs = {y}});
  backward(y, [this, x, y] {
    const TensorId gx = gradient_like(x);
    op({.kind = "clone", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

TensorId EagerGraph::put_in_order(TensorId x) {
  const TensorId y = value(shape(x));
  op({.kind = "clone", .inputs = {x}, .outputs = {y}});
  backward(y, [this, x, y] { contribute(x, gradient(y)); });
  return y;
}

TensorId EagerGraph::seen_as(TensorId x, Shape to) {
  EXPECTS(count(to) == count(shape(x)));
  graph_.tensors[x.index].shape = std::move(to);
  return x;
}

TensorId EagerGraph::seen_transposed(TensorId x, Shape to) {
  const Shape before = shape(x);
  const TensorId y = seen_as(x, std::move(to));
  backward(y, [this, y, before] {
    const TensorId ordered = tensor("gradient of rows of " + graph_[y].name, TensorKind::gradient, before);
    op({.kind = "clone", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {ordered}});
    gradients_.at(y.index) = ordered;
  });
  return y;
}

std::vector<TensorId> EagerGraph::split(TensorId x, const Shape& part, std::size_t parts) {
  EXPECTS(count(part) * static_cast<std::int64_t>(parts) == count(shape(x)));
  std::vector<TensorId> made;
  for (std::size_t p = 0; p < parts; ++p) {
    made.push_back(value(part));
    op({.kind = "clone",
        .inputs = {x},
        .outputs = {made.back()},
        .more_bytes = graph_[made.back()].bytes.count - graph_[x].bytes.count});
  }
  backward(made.back(), [this, x, made] {
    const TensorId gx = gradient_like(x);
    std::vector<TensorId> gradients;
    for (const TensorId t : made) gradients.push_back(gradient(t));
    op({.kind = "stack", .phase = Phase::backward, .inputs = gradients, .outputs = {gx}});
    contribute(x, gx);
  });
  return made;
}

TensorId EagerGraph::rows_of_pictures(TensorId x) {
  const Shape in = shape(x);
  const TensorId row = parameter("class_row", {1, 1, in[1]});
  const TensorId y = value({in[0], in[2] * in[3] + 1, in[1]});
  op({.kind = "cat", .inputs = {row, x}, .outputs = {y}});
  backward(y, [this, x, row, y] {
    const TensorId gx = gradient_like(x);
    op({.kind = "sum", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gradient_of_parameter(row)}});
    op({.kind = "slice", .phase = Phase::backward, .inputs = {gradient(y)}, .outputs = {gx}});
    contribute(x, gx);
  });
  return y;
}

Graph EagerGraph::trained(TensorId logits) && {
  next_stage("loss");
  const std::int64_t batch = shape(logits)[0];
  logits = converted(logits, bytes_of_number);
  const TensorId probabilities = value(shape(logits)), loss = value({}), weight = value({});
  op({.kind = "_log_softmax", .inputs = {logits}, .outputs = {probabilities}});
  const std::int64_t targets = bytes_of_index * batch;
  op({.kind = "nll_loss_forward",
      .inputs = {probabilities},
      .outputs = {loss, weight},
      .saved = {weight},
      .more_bytes = targets});
  const TensorId one = tensor("gradient of the loss", TensorKind::gradient, {});
  op({.kind = "ones_like", .phase = Phase::backward, .outputs = {one}});
  const TensorId of_probabilities = gradient_like(probabilities), of_logits = gradient_like(logits);
  op({.kind = "nll_loss_backward",
      .phase = Phase::backward,
      .inputs = {one, probabilities, weight},
      .outputs = {of_probabilities},
      .more_bytes = targets});
  op({.kind = "_log_softmax_backward_data",
      .phase = Phase::backward,
      .inputs = {of_probabilities, probabilities},
      .outputs = {of_logits}});
  contribute(logits, of_logits);
  for (std::size_t b = backwards_.size(); b-- > 0;) backwards_[b].second();
  return std::move(graph_);
}

}  // namespace plimsoll
