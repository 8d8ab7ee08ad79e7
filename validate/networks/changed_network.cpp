#include "validate/networks/changed_network.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "sim/core/names.h"

namespace plimsoll {
namespace {

using NamedTensors = std::map<std::string, TensorId>;

NamedTensors tensors_by_name(const Graph& graph) {
  NamedTensors named;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) named.try_emplace(graph.tensors[t].name, id_at<TensorId>(t));
  return named;
}

/// Of an update that is none of the optimizers that networks are built with.
std::optional<std::string> other_optimizer(const Op& op) {
  if (op.phase != Phase::update) return std::nullopt;
  for (const auto& [name, value] : op.attributes) {
    if (name == "optimizer" && !from_name<Optimizer>(value)) return value;
  }
  return std::nullopt;
}

/// The tensor of that name, as large as the other one; a new one where there is none.
TensorId taken_tensor(Graph& graph, NamedTensors& named, const Tensor& like) {
  const auto [found, is_new] = named.try_emplace(like.name, id_at<TensorId>(graph.tensors.size()));
  if (is_new) {
    graph.tensors.push_back(like);
    graph.tensors.back().storage = id_at<StorageId>(graph.storages++);
  }
  Tensor& tensor = graph.tensors[found->second.index];
  if (tensor.kind == TensorKind::optimizer_state) {
    tensor.bytes = like.bytes;
    tensor.shape = like.shape;
    tensor.dtype = like.dtype;
  }
  return found->second;
}

}  // namespace

void take_updates(Graph& graph, const Graph& from) {
  NamedTensors named = tensors_by_name(graph);
  std::map<std::string, const Op*> updates;
  for (const Op& op : from.ops) {
    if (other_optimizer(op)) updates[op.name] = &op;
  }
  for (Op& op : graph.ops) {
    const auto found = updates.find(op.name);
    if (op.phase != Phase::update || found == updates.end()) continue;
    const Op& update = *found->second;
    const auto taken = [&](const std::vector<TensorId>& list) {
      std::vector<TensorId> here;
      for (const TensorId t : list) here.push_back(taken_tensor(graph, named, from[t]));
      return here;
    };
    op.inputs = taken(update.inputs);
    op.mutates = taken(update.mutates);
    op.attributes = update.attributes;
    for (const auto& [name, value] : update.attributes) {
      if (name != "shared_state") continue;
      const auto shared = std::ranges::find(from.tensors, value, &Tensor::name);
      if (shared != from.tensors.end()) taken_tensor(graph, named, *shared);
    }
  }
}

void take_shapes(Graph& graph, const Graph& from) {
  const NamedTensors named = tensors_by_name(from);
  for (Tensor& tensor : graph.tensors) {
    const auto found = named.find(tensor.name);
    if (found == named.end() || from[found->second].shape.empty()) continue;
    tensor.shape = from[found->second].shape;
    tensor.bytes = from[found->second].bytes;
  }
}

}  // namespace plimsoll
