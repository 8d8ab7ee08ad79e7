#include "traces/imports/pytorch/step_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/io/input_error.h"
#include "traces/trace_parts.h"

namespace plimsoll {

bool is_backward_range(std::string_view name) {
  return name.starts_with("autograd::engine::evaluate_function");
}

bool is_update_range(std::string_view name) {
  return name.starts_with("Optimizer.");
}

std::optional<std::int64_t> profiler_step(std::string_view name) {
  constexpr std::string_view key = "ProfilerStep#";
  if (!name.starts_with(key)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(name.data() + key.size(), name.data() + name.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::size_t> chosen_step(const std::vector<std::int64_t>& steps, const std::string& file,
                                       ImportNumbers& numbers) {
  if (steps.empty()) return std::nullopt;
  const std::optional<std::int64_t> asked = numbers.asked("step");
  if (!asked) return steps.size() - 1;
  const auto place = std::ranges::find(steps, *asked);
  if (place != steps.end()) return static_cast<std::size_t>(place - steps.begin());
  throw InputError(located(file, {}, "step", fmt::format("the recording has no ProfilerStep#{}", *asked)));
}

TensorId RecordedDraft::tensor(std::string name, TensorKind kind, const RecordedOperand& like,
                               std::optional<StorageId> storage) {
  double numbers = 1;
  for (const std::int64_t n : like.shape) numbers *= static_cast<double>(n);
  constexpr double most_together = 1e17;  // so that bytes stay below 2^62
  numbers_ += numbers;
  if (numbers_ > most_together) throw InputError("a recording with absurdly large shapes");
  graph.tensors.push_back({.name = std::move(name),
                           .kind = kind,
                           .bytes = {element_count(like.shape) * element_bytes(like.dtype).value_or(1)},
                           .storage = storage ? *storage : id_at<StorageId>(graph.storages++),
                           .shape = like.shape,
                           .dtype = like.dtype});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

void RecordedDraft::own(TensorId gradient, TensorId parameter) {
  parameters_.push_back(parameter);
  gradients_.push_back(gradient);
  graph.tensors[gradient.index].kind = TensorKind::parameter_gradient;
  graph.tensors[gradient.index].gradient_of = parameter;
}

bool RecordedDraft::is_owned(TensorId parameter) const {
  return std::ranges::find(parameters_, parameter) != parameters_.end();
}

void RecordedDraft::add_update(Op op, const std::vector<TensorId>& states) {
  op.name = "Optimizer.step";
  op.kind = "optimizer";
  op.phase = parameters_.empty() ? Phase::backward : Phase::update;
  std::int64_t bytes = 0;
  const auto renew = [&](TensorId old) {
    const RecordedOperand like{graph[old].shape, graph[old].dtype};
    op.outputs.push_back(tensor(graph[old].name + " updated", graph[old].kind, like, graph[old].storage));
    op.mutates.push_back(old);
  };
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    op.inputs.insert(op.inputs.end(), {parameters_[k], gradients_[k]});
    bytes += 3 * graph[parameters_[k]].bytes.count;
    renew(parameters_[k]);
  }
  if (!parameters_.empty()) {
    for (const TensorId state : states) {
      op.inputs.push_back(state);
      renew(state);
    }
  }
  if (!op.bytes_moved) op.bytes_moved = Bytes{bytes};
  graph.ops.push_back(std::move(op));
}

void mark_saved(Graph& graph) {
  std::vector<bool> in_forward(graph.storages, false), in_backward(graph.storages, false);
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.inputs)
      (is_backward(op.phase) ? in_backward : in_forward)[graph[t].storage.index] = true;
  }
  for (Op& op : graph.ops) {
    if (op.phase != Phase::forward) continue;
    for (const TensorId t : op.outputs) {
      const std::uint32_t storage = graph[t].storage.index;
      if (in_backward[storage] && !in_forward[storage]) op.saved.push_back(t);
    }
  }
}

Graph checked(Graph graph, const std::filesystem::path& path) {
  JsonDocument document("{}", path.string());
  check_graph(document, graph);
  document.throw_if_any();
  return graph;
}

}  // namespace plimsoll
