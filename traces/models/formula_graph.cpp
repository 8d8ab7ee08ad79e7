#include "traces/models/formula_graph.h"

#include <algorithm>
#include <optional>
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

TensorId FormulaGraph::trained_parameter(std::string name, Shape shape) {
  const TensorId made = tensor(std::move(name), TensorKind::parameter, std::move(shape), 4, "fp32");
  trained_.insert(made);
  return made;
}

bool FormulaGraph::is_trained(TensorId of) const {
  return graph_[of].kind == TensorKind::parameter && (!is_frozen_ || trained_.contains(of));
}

TensorId FormulaGraph::gradient(TensorId of) {
  const auto known = parameter_gradients_.find(of);
  if (known != parameter_gradients_.end()) return known->second;
  const Tensor like = graph_[of];
  const bool is_parameter = is_trained(of);
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
  if (is_frozen_) drop_unneeded_backwards();
  return std::move(graph_);
}

void FormulaGraph::drop_unneeded_backwards() {
  std::vector<bool> is_needed(graph_.tensors.size());
  std::vector<Op> kept;
  for (auto each = graph_.ops.rbegin(); each != graph_.ops.rend(); ++each) {
    Op& op = *each;
    const auto needs = [&](TensorId t) {
      return is_needed[t.index] || graph_[t].kind == TensorKind::parameter_gradient;
    };
    if (is_backward(op.phase)) {
      if (std::ranges::none_of(op.outputs, needs)) continue;
      for (const TensorId t : op.inputs) is_needed[t.index] = true;
    }
    kept.push_back(std::move(op));
  }
  std::ranges::reverse(kept);
  graph_.ops = std::move(kept);
  drop_unused_tensors();
}

void FormulaGraph::drop_unused_tensors() {
  std::vector<bool> is_used;
  for (const Tensor& tensor : graph_.tensors) is_used.push_back(is_given(tensor.kind));
  for (const Op& op : graph_.ops) {
    for (const TensorId t : op.outputs) is_used[t.index] = true;
  }
  std::vector<TensorId> numbers(graph_.tensors.size());
  std::vector<Tensor> tensors;
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    numbers[t] = id_at<TensorId>(tensors.size());
    if (!is_used[t]) continue;
    tensors.push_back(std::move(graph_.tensors[t]));
    tensors.back().storage = id_at<StorageId>(tensors.size() - 1);
    if (std::optional<TensorId>& of = tensors.back().gradient_of) of = numbers[of->index];
  }
  for (Op& op : graph_.ops) {
    for (Ids* list : {&op.inputs, &op.outputs}) {
      for (TensorId& t : *list) t = numbers[t.index];
    }
  }
  graph_.storages = static_cast<std::uint32_t>(tensors.size());
  graph_.tensors = std::move(tensors);
}

}  // namespace plimsoll
