#include "traces/models/formula_graph.h"

#include <utility>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {

FormulaGraph::FormulaGraph(std::string model, std::string dtype, FlopsPerSecond rate)
    : element_(dtype == "fp32" || dtype == "tf32" ? 4 : 2),
      model_(std::move(model)),
      dtype_(dtype == "tf32" ? "fp32" : dtype),
      rate_(rate) {
  graph_.source.dtype = std::move(dtype);
}

void FormulaGraph::note(std::string key, std::string text) {
  graph_.source.notes.emplace_back(std::move(key), std::move(text));
}

TensorId FormulaGraph::tensor(std::string name, TensorKind kind, Shape shape, std::int64_t element,
                              std::string numbers) {
  Tensor made;
  double bytes = static_cast<double>(element);
  for (const std::int64_t extent : shape) bytes *= static_cast<double>(extent);
  if (!(bytes <= static_cast<double>(largest_bytes.count))) throw InputError(model_ + ": a tensor of more than 4 PiB");
  made.name = std::move(name);
  made.kind = kind;
  made.bytes = Bytes{static_cast<std::int64_t>(bytes)};
  made.storage = id_at<StorageId>(graph_.storages++);
  made.shape = std::move(shape);
  made.dtype = numbers.empty() ? dtype_ : std::move(numbers);
  graph_.tensors.push_back(std::move(made));
  return id_at<TensorId>(graph_.tensors.size() - 1);
}

TensorId FormulaGraph::packed_parameter(std::string name, Shape shape, Bytes bytes, std::string numbers) {
  const TensorId made = tensor(std::move(name), TensorKind::parameter, std::move(shape), 1, std::move(numbers));
  graph_.tensors[made.index].bytes = bytes;
  return made;
}

TensorId FormulaGraph::gradient(TensorId of) {
  const auto known = parameter_gradients_.find(of);
  if (known != parameter_gradients_.end()) return known->second;
  const Tensor like = graph_[of];
  const bool is_parameter = like.kind == TensorKind::parameter;
  std::int64_t numbers = 1;
  for (const std::int64_t extent : like.shape) numbers *= extent;
  const TensorId made =
      tensor("gradient of " + like.name, is_parameter ? TensorKind::parameter_gradient : TensorKind::gradient,
             like.shape, like.bytes.count / numbers, like.dtype);
  if (is_parameter) {
    graph_.tensors[made.index].gradient_of = of;
    parameter_gradients_.emplace(of, made);
  }
  return made;
}

void FormulaGraph::add(std::string name, const Kind& kind, Phase phase, Ids inputs, Ids outputs, std::string of) {
  Op op;
  op.name = std::move(name);
  op.kind = kind.kind;
  op.phase = phase;
  op.stage = stage_;
  op.workspace = kind.workspace;
  op.launches = kind.launches;
  op.flops = Flops{kind.flops};
  op.duration = *op.flops / rate_;
  Bytes moved;
  for (const Ids* list : {&inputs, &outputs}) {
    for (const TensorId t : *list) moved += graph_[t].bytes;
  }
  op.bytes_moved = kind.moved > 0 ? Bytes{static_cast<std::int64_t>(kind.moved)} : moved;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attributes.emplace_back("loop", kind.loop);
  if (!kind.reduces.empty()) op.attributes.emplace_back("loop_reduces", kind.reduces);
  if (!of.empty()) op.attributes.emplace_back("of", std::move(of));
  graph_.ops.push_back(std::move(op));
}

void FormulaGraph::state(std::string key, std::string text) {
  graph_.ops.back().attributes.emplace_back(std::move(key), std::move(text));
}

void FormulaGraph::end_stage(std::function<TensorId(TensorId)> backward) {
  const std::uint32_t stage = stage_++;
  backwards_.emplace_back([this, stage, backward = std::move(backward)](TensorId d) {
    stage_ = stage;
    return backward(d);
  });
}

Graph FormulaGraph::finished(TensorId gradient) {
  note("times", "operations of matrix products / " + format_flops_rate(rate_));
  for (auto backward = backwards_.rbegin(); backward != backwards_.rend(); ++backward) gradient = (*backward)(gradient);
  return std::move(graph_);
}

}  // namespace plimsoll
