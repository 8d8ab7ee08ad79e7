#include "strategies/transforms/kept_tensors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/schedule.h"

namespace plimsoll {

std::vector<bool> named_tensors(const Graph& graph) {
  std::vector<bool> named(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) named[t.index] = true;
    }
  }
  return named;
}

void keep_tensors(Graph& graph, const std::vector<bool>& keeps) {
  std::vector<TensorId> place(graph.tensors.size());
  std::map<StorageId, StorageId> storages;
  std::vector<Tensor> kept;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (!keeps[t]) continue;
    place[t] = id_at<TensorId>(kept.size());
    Tensor& tensor = kept.emplace_back(std::move(graph.tensors[t]));
    tensor.storage = storages.try_emplace(tensor.storage, id_at<StorageId>(storages.size())).first->second;
  }
  graph.tensors = std::move(kept);
  for (Tensor& tensor : graph.tensors) {
    if (tensor.gradient_of) tensor.gradient_of = place[tensor.gradient_of->index];
  }
  graph.storages = static_cast<std::uint32_t>(storages.size());
  for (Op& op : graph.ops) {
    for (auto* list : {&op.inputs, &op.outputs, &op.saved, &op.mutates}) {
      for (TensorId& t : *list) t = place[t.index];
    }
    for (InputUse& use : op.uses) use.tensor = place[use.tensor.index];
  }
}

std::vector<OpId> keep_ops(Graph& graph, const std::vector<bool>& keeps) {
  std::vector<OpId> place(graph.ops.size(), no_op);
  std::vector<Op> kept;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (!keeps[o]) continue;
    place[o] = id_at<OpId>(kept.size());
    kept.push_back(std::move(graph.ops[o]));
  }
  graph.ops = std::move(kept);
  for (std::vector<OpId>& group : graph.colocate) {
    std::erase_if(group, [&](OpId op) { return place[op.index] == no_op; });
    for (OpId& op : group) op = place[op.index];
  }
  std::erase_if(graph.colocate, [](const std::vector<OpId>& group) { return group.size() < 2; });
  return place;
}

}  // namespace plimsoll
