#include "traces/models/training_graph.h"

#include <fmt/format.h>

namespace plimsoll {

/// A third more or less. Raw bits of the engine: distributions of the standard library differ between libraries.
double TrainingGraph::drawn(double around) {
  constexpr double bits = 4294967296.0;  // 2^32
  const double share = static_cast<double>(engine_() >> 32U) / bits;
  return around * (2.0 / 3 + share * 2.0 / 3);
}

TensorId TrainingGraph::add_tensor(std::string name, TensorKind kind, std::int64_t bytes, bool is_weight) {
  Graph& graph = made_.graph;
  const auto made = id_at<TensorId>(graph.tensors.size());
  graph.tensors.push_back({.name = std::move(name),
                           .kind = kind,
                           .bytes = Bytes{bytes},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = {},
                           .dtype = {}});
  made_.is_weight.push_back(is_weight);
  return made;
}

std::uint32_t TrainingGraph::add_op(std::string_view kind, Phase phase, double microseconds, bool is_spine,
                                    std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
  Graph& graph = made_.graph;
  const auto made = static_cast<std::uint32_t>(graph.ops.size());
  Op op;
  op.name = fmt::format("{}/{}", kind, made);
  op.kind = kind;
  op.phase = phase;
  op.stage = stage_;
  op.duration = Seconds{drawn(microseconds) * 1e-6};
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  graph.ops.push_back(std::move(op));
  made_.is_spine.push_back(is_spine);
  return made;
}

TrainingGraph::Value TrainingGraph::add_value(TensorId tensor, bool has_gradient) {
  values_.push_back({.tensor = tensor, .has_gradient = has_gradient, .contributions = {}});
  return {static_cast<std::uint32_t>(values_.size() - 1)};
}

TrainingGraph::Value TrainingGraph::input(std::int64_t bytes) {
  return add_value(add_tensor(fmt::format("input {}", values_.size()), TensorKind::input, bytes, false), false);
}

TrainingGraph::Weight TrainingGraph::weight(std::string_view name, std::int64_t bytes) {
  constexpr double microseconds = 2;
  MadeWeight weight;
  weight.parameter = add_tensor(std::string(name), TensorKind::parameter, bytes, true);
  weight.value = add_tensor(fmt::format("value of {}", name), TensorKind::activation, bytes, true);
  weight.gradient = add_tensor(fmt::format("gradient of {}", name), TensorKind::parameter_gradient, bytes, true);
  made_.graph.tensors.back().gradient_of = weight.parameter;
  add_op("read", Phase::forward, microseconds, false, {weight.parameter}, {weight.value});
  weights_.push_back(weight);
  return {static_cast<std::uint32_t>(weights_.size() - 1)};
}

TrainingGraph::Value TrainingGraph::add_forward(const Layer& layer, const std::vector<Value>& inputs, Record::Rule rule,
                                                Weight weight) {
  const auto bytes = rule == Record::Rule::sum  // as large as what it adds up
                         ? layer.bytes
                         : static_cast<std::int64_t>(drawn(static_cast<double>(layer.bytes)));
  std::vector<TensorId> read;
  for (const Value input : inputs) read.push_back(values_[input.index].tensor);
  if (rule == Record::Rule::weighted) read.push_back(weights_[weight.index].value);
  const TensorId tensor =
      add_tensor(fmt::format("{} {}", layer.kind, values_.size()), TensorKind::activation, bytes, false);
  const Value output = add_value(tensor, true);
  const std::uint32_t op =
      add_op(layer.kind, Phase::forward, layer.microseconds, layer.is_spine, std::move(read), {tensor});
  records_.push_back({rule, op, inputs, output, weight, layer.microseconds, layer.is_spine});
  return output;
}

TrainingGraph::Value TrainingGraph::op(const Layer& layer, const std::vector<Value>& inputs) {
  return add_forward(layer, inputs, Record::Rule::plain, {});
}

TrainingGraph::Value TrainingGraph::weighted(const Layer& layer, Value input, Weight weight) {
  return add_forward(layer, {input}, Record::Rule::weighted, weight);
}

TrainingGraph::Value TrainingGraph::sum(double microseconds, const std::vector<Value>& inputs) {
  const std::int64_t bytes = made_.graph[values_[inputs.front().index].tensor].bytes.count;
  return add_forward({.kind = "add", .microseconds = microseconds, .bytes = bytes}, inputs, Record::Rule::sum, {});
}

TensorId TrainingGraph::new_gradient(Value value) {
  const Tensor& of = made_.graph[values_[value.index].tensor];
  std::string name = fmt::format("gradient {} of {}", values_[value.index].contributions.size(), of.name);
  return add_tensor(std::move(name), TensorKind::gradient, of.bytes.count, false);
}

TensorId TrainingGraph::gradient_of(Value value) {
  constexpr double microseconds = 2;
  std::vector<TensorId>& contributions = values_[value.index].contributions;
  if (contributions.size() == 1) return contributions.front();
  const TensorId whole = new_gradient(value);
  add_op("add_n", Phase::backward, microseconds, false, contributions, {whole});
  contributions = {whole};
  return whole;
}

void TrainingGraph::add_backward(const Record& record) {
  if (values_[record.output.index].contributions.empty()) return;  // nobody reads it
  stage_ = made_.graph.ops[record.op].stage;
  const std::string kind = made_.graph.ops[record.op].kind;
  const TensorId gradient = gradient_of(record.output);
  std::vector<TensorId> read{gradient}, outputs;
  for (const Value input : record.inputs) {
    if (record.rule != Record::Rule::sum) read.push_back(values_[input.index].tensor);
    if (!values_[input.index].has_gradient) continue;
    if (record.rule != Record::Rule::sum) outputs.push_back(new_gradient(input));
    values_[input.index].contributions.push_back(record.rule == Record::Rule::sum ? gradient : outputs.back());
  }
  if (record.rule == Record::Rule::sum) return;
  if (record.rule == Record::Rule::plain) {
    if (outputs.empty()) return;
    add_op(kind + "_grad", Phase::backward, record.microseconds, record.is_spine, std::move(read), std::move(outputs));
    return;
  }
  const MadeWeight& weight = weights_[record.weight.index];
  add_op(kind + "_grad_weight", Phase::backward, record.microseconds, false, read, {weight.gradient});
  if (outputs.empty()) return;
  add_op(kind + "_grad_input", Phase::backward, record.microseconds, record.is_spine, {gradient, weight.value},
         std::move(outputs));
}

ProportionedGraph TrainingGraph::trained(const std::vector<Value>& last) && {
  constexpr double microseconds = 5;
  constexpr std::int64_t number = 4;
  const Value loss = op({.kind = "loss", .microseconds = microseconds, .bytes = number}, last);
  const TensorId one = add_tensor("gradient of the loss", TensorKind::gradient, number, false);
  add_op("ones", Phase::backward, microseconds, false, {}, {one});
  values_[loss.index].contributions.push_back(one);
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) add_backward(*record);
  return std::move(made_);
}

}  // namespace plimsoll
