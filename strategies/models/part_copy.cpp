#include "strategies/models/part_copy.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

constexpr StorageId no_storage{std::numeric_limits<std::uint32_t>::max()};

/// Also what an update or an exchange around it takes together with that.
std::vector<bool> shared_with_updates(const PartTask& task) {
  std::vector<bool> shared = shared_with_other_parts(task);
  const auto is_shared = [&](TensorId t) { return shared[t.index]; };
  for (bool grows = true; grows;) {
    grows = false;
    for (const Op& op : task.problem.graph.ops) {
      if (op.phase != Phase::update || std::ranges::none_of(op.inputs, is_shared)) continue;
      for (const TensorId t : op.inputs) {
        grows |= !shared[t.index];
        shared[t.index] = true;
      }
    }
  }
  return shared;
}

}  // namespace

/// By tensor: parameters that other parts use, and gradients that they make too.
std::vector<bool> shared_with_other_parts(const PartTask& task) {
  const Graph& graph = task.problem.graph;
  std::vector<bool> used(graph.tensors.size(), false);
  for (std::size_t p = 0; p < task.partition.parts.size(); ++p) {
    if (id_at<PartId>(p) == task.id) continue;
    for (const OpId op : task.partition.parts[p].ops) {
      for (const auto* list : {&graph[op].inputs, &graph[op].outputs}) {
        for (const TensorId t : *list) used[t.index] = used[t.index] || !per_micro_batch(graph[t].kind);
      }
    }
  }
  return used;
}

PartCopy::PartCopy(const PartTask& task, PartAlone& made) : task_(task), whole_(task.problem), made_(made) {
  made_.here.assign(whole_.graph.ops.size(), no_op);
  made_.tensor_here.assign(whole_.graph.tensors.size(), no_tensor);
  storage_here_.assign(whole_.graph.storages, no_storage);
  Problem& problem = made_.problem;
  problem.platform = whole_.platform;
  for (Device& device : problem.platform.devices) device.takes_trace_times = true;  // those of its own
  problem.micro_batches = std::min(whole_.micro_batches, 2U);
  problem.optimizer = whole_.optimizer;
  problem.parameter_groups = whole_.parameter_groups;
  problem.states = whole_.states;
  problem.keeps_averages = whole_.keeps_averages;
  problem.gradients = whole_.gradients;
  problem.transformed = whole_.transformed;
  problem.graph.name = whole_.graph.name;
  problem.graph.source = whole_.graph.source;
}

TensorId PartCopy::tensor(TensorId of) {
  TensorId& here = made_.tensor_here[of.index];
  if (here != no_tensor) return here;
  Graph& graph = made_.problem.graph;
  StorageId& storage = storage_here_[whole_.graph[of].storage.index];
  if (storage == no_storage) storage = id_at<StorageId>(graph.storages++);
  Tensor tensor = whole_.graph[of];
  tensor.storage = storage;
  if (tensor.gradient_of) tensor.gradient_of = this->tensor(*tensor.gradient_of);
  here = id_at<TensorId>(graph.tensors.size());
  graph.tensors.push_back(std::move(tensor));
  made_.tensor_of.push_back(of);
  return here;
}

std::vector<TensorId> PartCopy::tensors(const std::vector<TensorId>& of) {
  std::vector<TensorId> all;
  for (const TensorId t : of) all.push_back(tensor(t));
  return all;
}

TensorId PartCopy::order_token(std::string name) {
  Graph& graph = made_.problem.graph;
  graph.tensors.push_back({.name = std::move(name),
                           .kind = TensorKind::activation,
                           .bytes = {},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = {},
                           .dtype = {}});
  made_.tensor_of.push_back(no_tensor);
  return id_at<TensorId>(graph.tensors.size() - 1);
}

Op PartCopy::copied(OpId of) {
  Op op = whole_.graph[of];
  op.inputs = tensors(op.inputs);
  op.outputs = tensors(op.outputs);
  op.saved = tensors(op.saved);
  op.mutates = tensors(op.mutates);
  for (InputUse& use : op.uses) use.tensor = tensor(use.tensor);
  const DeviceId device = task_.part().device;
  op.duration = duration_on(whole_, of, device, Saving::keep);
  if (op.nograd_duration) op.nograd_duration = duration_on(whole_, of, device, Saving::nothing);
  for (std::uint32_t k = 0; k < op.alternatives.size(); ++k) {
    op.alternatives[k].duration = duration_on(whole_, of, device, Saving::keep, k + 1);
  }
  return op;
}

OpId PartCopy::add(Op op, OpId of) {
  Graph& graph = made_.problem.graph;
  graph.ops.push_back(std::move(op));
  made_.op_of.push_back(of);
  const OpId here = id_at<OpId>(graph.ops.size() - 1);
  if (of != no_op) made_.here[of.index] = here;
  return here;
}

std::vector<OpId> PartCopy::own_updates() const {
  const std::vector<bool> elsewhere = shared_with_updates(task_);
  std::vector<bool> is_updated(whole_.graph.tensors.size(), false);
  std::vector<OpId> updates;
  for (std::size_t o = 0; o < whole_.graph.ops.size(); ++o) {
    const Op& op = whole_.graph.ops[o];
    if (op.phase != Phase::update) continue;
    const auto is_here = [&](TensorId t) {
      const bool is_gradient = whole_.graph[t].kind == TensorKind::parameter_gradient;
      return is_updated[t.index] || (is_gradient && made_.tensor_here[t.index] != no_tensor);
    };
    const auto is_shared = [&](TensorId t) { return elsewhere[t.index]; };
    if (std::ranges::none_of(op.inputs, is_here) || std::ranges::any_of(op.inputs, is_shared)) continue;
    updates.push_back(id_at<OpId>(o));
    for (const TensorId t : op.mutates) is_updated[t.index] = true;
  }
  return updates;
}

void PartCopy::add_partition() {
  const DeviceId device = task_.part().device;
  made_.partition = one_device(made_.problem.graph, made_.problem.micro_batches, whole_.platform.devices.size());
  std::swap(made_.partition.order.front(), made_.partition.order[device.index]);
  made_.partition.parts.front().device = device;
}

bool is_part_alone(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) { return op.kind == kind_of_transfer; });
}

}  // namespace plimsoll
