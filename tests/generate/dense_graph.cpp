#include "tests/generate/dense_graph.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

constexpr std::int64_t batch = 32, growth = 48, bytes_each = 4;

class Dense {
 public:
  Graph build(const std::array<std::size_t, 4>& layers) {
    graph_.name = "dense";
    Value x = {tensor("input", TensorKind::input, batch * 3 * 224 * 224 * bytes_each), 3, 224};
    x = convolution(x, 96, 4);
    for (std::size_t b = 0; b < layers.size(); ++b) {
      std::vector<Value> features{x};
      for (std::size_t l = 0; l < layers[b]; ++l) features.push_back(layer(features));
      x = pointwise("relu", pointwise("norm", concatenation(features)));
      if (b + 1 < layers.size()) x = convolution(x, x.channels / 2, 2);
    }
    forward_op("loss", {x.tensor}, tensor("loss", TensorKind::activation, 4), 0, 4, {});
    backward();
    return std::move(graph_);
  }

 private:
  struct Value {
    TensorId tensor;
    std::int64_t channels = 0, side = 0;
  };
  struct Forward {
    std::vector<TensorId> inputs, read_again;  ///< by the backward
    TensorId output;
    std::optional<TensorId> parameter;
    Seconds time;
    std::string name;
  };

  TensorId tensor(std::string name, TensorKind kind, std::int64_t bytes) {
    graph_.tensors.push_back({.name = std::move(name),
                              .kind = kind,
                              .bytes = Bytes{bytes},
                              .storage = id_at<StorageId>(graph_.storages++),
                              .shape = {},
                              .dtype = "float32"});
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  static std::int64_t bytes_of(const Value& x) { return batch * x.channels * x.side * x.side * bytes_each; }

  void forward_op(const std::string& name, std::vector<TensorId> inputs, TensorId output, double flops, double moved,
                  std::vector<TensorId> read_again, std::optional<TensorId> parameter = {}) {
    constexpr double flops_rate = 15e12, memory_rate = 1.5e12;
    const Seconds time{std::max(flops / flops_rate, moved / memory_rate)};
    Op op;
    op.name = name + std::to_string(graph_.ops.size());
    op.kind = name;
    op.duration = time;
    op.inputs = inputs;
    if (parameter) op.inputs.push_back(*parameter);
    op.outputs = {output};
    graph_.ops.push_back(op);
    forwards_.push_back({std::move(inputs), std::move(read_again), output, parameter, time, op.name});
  }

  Value pointwise(const std::string& kind, const Value& x) {
    const Value y{tensor(kind, TensorKind::activation, bytes_of(x)), x.channels, x.side};
    const auto moved = static_cast<double>(2 * bytes_of(x));
    forward_op(kind, {x.tensor}, y.tensor, 0, moved, {kind == "relu" ? y.tensor : x.tensor});
    return y;
  }

  Value convolution(const Value& x, std::int64_t channels, std::int64_t stride, std::int64_t width = 1) {
    Value y{{}, channels, x.side / stride};
    y.tensor = tensor("convolution", TensorKind::activation, bytes_of(y));
    const std::int64_t weights = x.channels * channels * width * width;
    const auto flops = static_cast<double>(2 * batch * y.side * y.side * weights);
    const TensorId parameter = tensor("weight", TensorKind::parameter, weights * bytes_each);
    forward_op("convolution", {x.tensor}, y.tensor, flops, static_cast<double>(bytes_of(x) + bytes_of(y)), {x.tensor},
               parameter);
    return y;
  }

  Value concatenation(const std::vector<Value>& features) {
    Value all{{}, 0, features.front().side};
    std::vector<TensorId> inputs;
    for (const Value& f : features) {
      all.channels += f.channels;
      inputs.push_back(f.tensor);
    }
    all.tensor = tensor("concatenation", TensorKind::activation, bytes_of(all));
    forward_op("concatenation", inputs, all.tensor, 0, static_cast<double>(2 * bytes_of(all)), {});
    return all;
  }

  Value layer(const std::vector<Value>& features) {
    const Value all = pointwise("relu", pointwise("norm", concatenation(features)));
    const Value narrow = pointwise("relu", pointwise("norm", convolution(all, 4 * growth, 1)));
    return convolution(narrow, growth, 1, 3);
  }

  void backward() {
    std::vector<std::optional<TensorId>> gradients(graph_.tensors.size());
    for (std::size_t f = forwards_.size(); f-- > 0;) {
      const Forward forward = forwards_[f];
      Op op;
      op.name = forward.name + " backward";
      op.kind = "backward";
      op.phase = Phase::backward;
      op.duration = (forward.parameter ? 2.0 : 1.5) * forward.time;
      if (f + 1 < forwards_.size()) op.inputs.push_back(*gradients[forward.output.index]);
      op.inputs.insert(op.inputs.end(), forward.read_again.begin(), forward.read_again.end());
      if (forward.parameter) {
        op.inputs.push_back(*forward.parameter);
        op.outputs.push_back(
            tensor("weight gradient", TensorKind::parameter_gradient, graph_[*forward.parameter].bytes.count));
      }
      std::vector<std::pair<TensorId, TensorId>> shares;
      for (const TensorId t : forward.inputs) {
        if (graph_[t].kind == TensorKind::input) continue;
        shares.emplace_back(t, tensor("share", TensorKind::gradient, graph_[t].bytes.count));
        op.outputs.push_back(shares.back().second);
      }
      graph_.ops.push_back(std::move(op));
      for (const auto& [value, share] : shares) add_share(gradients[value.index], share);
    }
  }

  void add_share(std::optional<TensorId>& gradient, TensorId share) {
    if (!gradient) {
      gradient = share;
      return;
    }
    Op add;
    add.name = "add" + std::to_string(graph_.ops.size());
    add.kind = "add";
    add.phase = Phase::backward;
    add.duration = Seconds{static_cast<double>(3 * graph_[share].bytes.count) / 1.5e12};
    add.inputs = {*gradient, share};
    gradient = tensor("sum", TensorKind::gradient, graph_[share].bytes.count);
    add.outputs = {*gradient};
    graph_.ops.push_back(std::move(add));
  }

  Graph graph_;
  std::vector<Forward> forwards_;
};

}  // namespace

Graph dense_graph(const std::array<std::size_t, 4>& layers) {
  return Dense().build(layers);
}

}  // namespace plimsoll
