#include "sim/model/graph_updates.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

/// Where a parameter is read first, or a gradient is made last.
struct UpdatePlace {
  std::uint32_t op = never, position = 0, stage = 0;
};

class Matching {
 public:
  explicit Matching(const Graph& graph)
      : graph_(graph), first_(graph.storages), place_(graph.storages), owner_(graph.storages) {
    find_tensors();
    find_places();
    for (const std::vector<TensorId>* list : {&parameters_, &gradients_}) {
      for (const TensorId t : *list) counts_numbers_ &= !graph_[t].shape.empty();
    }
  }

  std::variant<std::vector<TrainedParameter>, std::string> run() {
    for (const TensorId g : gradients_) {
      if (const std::optional<TensorId> named = named_owner(g)) owner_[storage(g)] = named;
    }
    pair_groups([this](TensorId t) { return std::tuple(place_[storage(t)].stage, size(t)); });
    pair_groups([this](TensorId t) { return size(t); });
    std::vector<std::vector<TensorId>> gradients_of(graph_.storages);
    for (const TensorId g : gradients_) {
      const std::optional<TensorId>& owner = owner_[storage(g)];
      if (!owner) return doubt(g);
      gradients_of[storage(*owner)].push_back(g);
    }
    std::vector<TrainedParameter> trained;
    for (const TensorId p : parameters_) {
      if (!gradients_of[storage(p)].empty()) trained.push_back({p, gradients_of[storage(p)]});
    }
    return trained;
  }

 private:
  std::uint32_t storage(TensorId t) const { return graph_[t].storage.index; }

  void find_tensors() {
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const bool is_parameter = tensor.kind == TensorKind::parameter;
      if (!is_parameter && tensor.kind != TensorKind::parameter_gradient) continue;
      if (is_parameter) {
        const auto [known, fresh] = by_name_.try_emplace(tensor.name, tensor.storage);
        if (!fresh && known->second != tensor.storage) known->second.reset();
      }
      std::optional<TensorId>& first = first_[tensor.storage.index];
      if (first) continue;
      first = TensorId{t};
      (is_parameter ? parameters_ : gradients_).push_back(*first);
    }
  }

  void find_places() {
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      for (std::uint32_t k = 0; k < op.inputs.size(); ++k) {
        UpdatePlace& place = place_[storage(op.inputs[k])];
        if (graph_[op.inputs[k]].kind == TensorKind::parameter && place.op == never) place = {o, k, op.stage};
      }
      for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
        if (graph_[op.outputs[k]].kind == TensorKind::parameter_gradient)
          place_[storage(op.outputs[k])] = {o, k, op.stage};
      }
    }
    std::ranges::stable_sort(parameters_, {}, [this](TensorId t) {
      const UpdatePlace& at = place_[storage(t)];
      return std::tuple(at.op, at.position);
    });
    std::ranges::stable_sort(gradients_, {}, [this](TensorId t) {
      const UpdatePlace& at = place_[storage(t)];
      return std::tuple(never - at.op, at.position);
    });
  }

  /// Numbers where every shape is known, else bytes.
  std::int64_t size(TensorId t) const {
    if (!counts_numbers_) return graph_[t].bytes.count;
    std::int64_t numbers = 1;
    for (const std::int64_t extent : graph_[t].shape) numbers *= extent;
    return numbers;
  }

  std::optional<TensorId> named_owner(TensorId gradient) const {
    const Tensor& tensor = graph_[gradient];
    if (tensor.gradient_of) return first_[storage(*tensor.gradient_of)];
    constexpr std::string_view before = "gradient of ", behind = ".grad";
    std::string name = tensor.name;
    if (name.starts_with(before)) {
      name.erase(0, before.size());
    } else if (name.ends_with(behind)) {
      name.erase(name.size() - behind.size());
    } else {
      return std::nullopt;
    }
    const auto known = by_name_.find(name);
    if (known == by_name_.end() || !known->second) return std::nullopt;
    return first_[known->second->index];
  }

  /// By storage of a parameter.
  std::vector<bool> owners() const {
    std::vector<bool> owns(graph_.storages, false);
    for (const TensorId g : gradients_) {
      if (const std::optional<TensorId>& owner = owner_[storage(g)]) owns[storage(*owner)] = true;
    }
    return owns;
  }

  template <class Key>
  void pair_groups(Key key_of) {
    struct Group {
      std::vector<TensorId> parameters, gradients;
    };
    const std::vector<bool> owns = owners();
    std::map<decltype(key_of(TensorId{})), Group> groups;
    for (const TensorId p : parameters_) {
      if (!owns[storage(p)]) groups[key_of(p)].parameters.push_back(p);
    }
    for (const TensorId g : gradients_) {
      if (!owner_[storage(g)]) groups[key_of(g)].gradients.push_back(g);
    }
    for (const auto& [key, group] : groups) {
      if (group.parameters.size() != group.gradients.size()) continue;
      for (std::size_t k = 0; k < group.gradients.size(); ++k) {
        owner_[storage(group.gradients[k])] = group.parameters[k];
      }
    }
  }

  std::string doubt(TensorId gradient) const {
    const std::vector<bool> owns = owners();
    std::vector<TensorId> same;
    std::ranges::copy_if(parameters_, std::back_inserter(same),
                         [&](TensorId p) { return size(p) == size(gradient) && !owns[storage(p)]; });
    std::string why = "it is not known which parameter '" + graph_[gradient].name + "' is the gradient of: ";
    if (same.empty()) {
      why += "none of its size is left";
    } else {
      const auto is_left = [&](TensorId g) { return size(g) == size(gradient) && !owner_[storage(g)]; };
      why += std::to_string(same.size()) + " of its size are left ('" + graph_[same.front()].name + "', ...) for " +
             std::to_string(std::ranges::count_if(gradients_, is_left)) + " gradients";
    }
    return why + "; say it in the trace, with gradient_of";
  }

  const Graph& graph_;
  std::vector<TensorId> parameters_, gradients_;             // the first of their storages; as read, as made backwards
  std::vector<std::optional<TensorId>> first_;               // by storage
  std::map<std::string, std::optional<StorageId>> by_name_;  // of parameters; unset where two have the name
  std::vector<UpdatePlace> place_;                           // by storage
  std::vector<std::optional<TensorId>> owner_;               // by storage of a gradient
  bool counts_numbers_ = true;
};

}  // namespace

bool updates_parameters(const Op& op) {
  return op.phase == Phase::update && !collective_of(op);
}

std::optional<OpId> early_reader_of_gradients(const Graph& graph) {
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::update) continue;
    const auto is_read = [&](TensorId t) {
      return graph[t].kind == TensorKind::parameter_gradient && std::ranges::find(op.outputs, t) == op.outputs.end();
    };
    if (std::ranges::any_of(op.inputs, is_read)) return OpId{o};
  }
  return std::nullopt;
}

void join_update(Op& update, const Op& other) {
  const auto add_missing = [](std::vector<TensorId>& to, const std::vector<TensorId>& from) {
    for (const TensorId t : from) {
      if (std::ranges::find(to, t) == to.end()) to.push_back(t);
    }
  };
  add_missing(update.inputs, other.inputs);
  add_missing(update.outputs, other.outputs);
  add_missing(update.mutates, other.mutates);
  if (other.duration) update.duration = update.duration.value_or(Seconds{}) + *other.duration;
  if (other.flops) update.flops = Flops{(update.flops ? update.flops->count : 0) + other.flops->count};
  if (other.bytes_moved) update.bytes_moved = update.bytes_moved.value_or(Bytes{}) + *other.bytes_moved;
  update.workspace = std::max(update.workspace, other.workspace);
}

std::variant<std::vector<TrainedParameter>, std::string> trained_parameters(const Graph& graph) {
  return Matching(graph).run();
}

std::variant<UpdatedGraph, std::string> graph_with_updates(Graph graph, const Optimizers& optimizers, States states) {
  EXPECTS(optimizers.rest != Optimizer::none);
  std::variant<std::vector<TrainedParameter>, std::string> found = trained_parameters(graph);
  if (std::string* why = std::get_if<std::string>(&found)) return "no updates can be made: " + *why;
  const auto& trained = std::get<std::vector<TrainedParameter>>(found);
  if (trained.empty()) return "an optimizer needs parameter gradients, and this graph trace has none";
  std::vector<TensorId> parameters;
  for (const TrainedParameter& each : trained) parameters.push_back(each.parameter);
  const States made = taken(states, graph, parameters);
  for (const auto& [parameter, gradients] : trained) {
    const Tensor of = graph[parameter];
    const std::string dtype = dtype_of(graph, of);
    if (states == States::fp32 && !bytes_of_dtype(dtype)) return no_fp32_states(of.name, dtype);
    std::vector<TensorId> kept;
    for (Tensor& state : states_of(optimizers.of(of.name), states, of, dtype)) {
      state.storage = id_at<StorageId>(graph.storages++);
      kept.push_back(id_at<TensorId>(graph.tensors.size()));
      graph.tensors.push_back(std::move(state));
    }
    graph.ops.push_back(update_op(graph, states, "update of " + of.name, {parameter}, gradients, kept));
  }
  return UpdatedGraph{std::move(graph), made};
}

}  // namespace plimsoll
