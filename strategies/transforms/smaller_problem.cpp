#include "strategies/transforms/smaller_problem.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {
namespace {

// A graph in which some parameters are frozen: without their gradients, updates and optimizer states, and without the
// backward ops and saved values that nothing needs any more.

struct FrozenGraph {
  Graph graph;
  std::vector<OpId> ops;  ///< by op of the whole graph: its place in this one, or no_op
};

/// The parameters that each parameter gradient may belong to.
class Owners {
 public:
  explicit Owners(const Graph& graph) : graph_(graph) {
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].kind == TensorKind::parameter)
        by_name_.try_emplace(graph.tensors[t].name, id_at<TensorId>(t));
    }
    for (const Op& op : graph.ops) {
      for (const TensorId t : op.phase == Phase::update ? op.inputs : op.outputs) {
        if (graph[t].kind == TensorKind::parameter_gradient) note(op, t);
      }
      if (op.phase != Phase::forward) continue;
      for (const TensorId t : op.inputs) {
        if (graph[t].kind == TensorKind::parameter) of_stage_[op.stage].insert(t);
      }
    }
  }

  std::set<TensorId> of(TensorId gradient) const {
    if (graph_[gradient].gradient_of) return {*graph_[gradient].gradient_of};
    const auto updated = updated_.find(gradient);
    if (updated != updated_.end()) return updated->second;
    constexpr std::string_view prefix = "gradient of ";
    const std::string& name = graph_[gradient].name;
    const auto named = name.starts_with(prefix) ? by_name_.find(name.substr(prefix.size())) : by_name_.end();
    if (named != by_name_.end()) return {named->second};
    std::set<TensorId> same, all;
    for (const std::uint32_t stage : stages_.at(gradient)) {
      const auto found = of_stage_.find(stage);
      if (found != of_stage_.end()) all.insert(found->second.begin(), found->second.end());
    }
    const auto is_as_large = [&](TensorId t) { return graph_[t].bytes == graph_[gradient].bytes; };
    std::ranges::copy_if(all, std::inserter(same, same.end()), is_as_large);
    return same.empty() ? all : same;
  }

 private:
  void note(const Op& op, TensorId gradient) {
    if (op.phase != Phase::update) {
      stages_[gradient].insert(op.stage);
      return;
    }
    for (const TensorId t : op.mutates) {
      if (graph_[t].kind == TensorKind::parameter) updated_[gradient].insert(t);
    }
  }

  const Graph& graph_;
  std::map<std::string, TensorId> by_name_;
  std::map<std::uint32_t, std::set<TensorId>> of_stage_;  // parameters that its forwards read
  std::map<TensorId, std::set<TensorId>> updated_;        // together with the gradient
  std::map<TensorId, std::set<std::uint32_t>> stages_;    // that make the gradient
};

class Freezer {
 public:
  Freezer(const Graph& graph, const std::vector<bool>& trained)
      : graph_(graph), trained_(trained), frozen_(graph.tensors.size(), false), needed_(graph.ops.size(), true) {}

  std::variant<FrozenGraph, std::string> run() {
    if (std::optional<std::string> doubt = find_frozen_gradients()) return *std::move(doubt);
    find_needed_ops();
    const std::vector<bool> read_before = reads(graph_.ops, {}), read = reads(graph_.ops, needed_);
    FrozenGraph made{.graph = graph_, .ops = {}};
    for (Op& op : made.graph.ops) {
      const auto is_gone = [&](TensorId t) {
        const bool unread = read_before[t.index] && !read[t.index];
        const bool saved = std::ranges::find(op.saved, t) != op.saved.end();
        return frozen_[t.index] || (unread && (saved || graph_[t].kind == TensorKind::gradient));
      };
      std::erase_if(op.outputs, is_gone);
      std::erase_if(op.saved, [&](TensorId t) { return std::ranges::find(op.outputs, t) == op.outputs.end(); });
    }
    made.ops = keep_ops(made.graph, needed_);
    std::vector<bool> keeps = named_tensors(made.graph);
    for (std::size_t t = 0; t < keeps.size(); ++t) {
      const TensorKind kind = graph_.tensors[t].kind;
      if (kind == TensorKind::parameter || kind == TensorKind::input) keeps[t] = true;
    }
    keep_tensors(made.graph, keeps);
    return made;
  }

 private:
  std::optional<std::string> find_frozen_gradients() {
    const Owners owners(graph_);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].kind != TensorKind::parameter_gradient) continue;
      const std::set<TensorId> owned = owners.of(id_at<TensorId>(t));
      const auto is_trained = [&](TensorId p) { return trained_[p.index]; };
      const auto count = static_cast<std::size_t>(std::ranges::count_if(owned, is_trained));
      frozen_[t] = count == 0;
      if (owned.empty()) return "it is not known which parameter '" + graph_.tensors[t].name + "' belongs to";
      if (count == 0 || count == owned.size()) continue;
      return "'" + graph_.tensors[t].name + "' may be the gradient of '" +
             graph_[*std::ranges::find_if(owned, is_trained)].name + "', which is to be trained, or of '" +
             graph_[*std::ranges::find_if_not(owned, is_trained)].name + "', which is not: train both or none";
    }
    return std::nullopt;
  }

  /// Forwards, updates of what is trained, and of the backward what leads to a gradient that is trained.
  void find_needed_ops() {
    std::vector<bool> read(graph_.tensors.size(), false);
    const auto is_read = [&](TensorId t) { return read[t.index]; };
    const auto is_trained_gradient = [&](TensorId t) {
      return graph_[t].kind == TensorKind::parameter_gradient && !frozen_[t.index];
    };
    const auto is_frozen_gradient = [&](TensorId t) { return frozen_[t.index]; };
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      if (op.phase == Phase::update) {
        needed_[o] = std::ranges::none_of(op.inputs, is_frozen_gradient);
      } else if (op.phase != Phase::forward) {
        needed_[o] = std::ranges::any_of(op.outputs, is_read) || std::ranges::any_of(op.outputs, is_trained_gradient);
      }
      if (!needed_[o] || op.phase == Phase::update) continue;
      for (const TensorId t : op.inputs) read[t.index] = true;
    }
  }

  /// By tensor: whether one of these ops (all, if unset) reads it.
  std::vector<bool> reads(const std::vector<Op>& ops, const std::vector<bool>& only) const {
    std::vector<bool> read(graph_.tensors.size(), false);
    for (std::size_t o = 0; o < ops.size(); ++o) {
      if (!only.empty() && !only[o]) continue;
      for (const TensorId t : ops[o].inputs) read[t.index] = true;
    }
    return read;
  }

  const Graph& graph_;
  const std::vector<bool>& trained_;
  std::vector<bool> frozen_;  // by tensor: gradients of frozen parameters
  std::vector<bool> needed_;  // by op
};

/// `trained` is by tensor; only that of parameters counts. Whose a gradient is, is told by the update that reads both,
/// else by its name ('gradient of w'), else by stage and bytes; in one sentence, where that leaves a doubt.
std::variant<FrozenGraph, std::string> freeze(const Graph& graph, const std::vector<bool>& trained) {
  return Freezer(graph, trained).run();
}

/// The op takes this share of its time, and of what a time on another device follows from.
void take_share(Op& op, double share) {
  if (op.duration) op.duration = share * *op.duration;
  if (op.flops) op.flops = Flops{share * op.flops->count};
  if (op.bytes_moved)
    op.bytes_moved = Bytes{static_cast<std::int64_t>(share * static_cast<double>(op.bytes_moved->count))};
  op.made_of = times(share, op.made_of);
}

/// Makes the chain, its index and the times of its ops those of the frozen graph.
class FrozenChain {
 public:
  FrozenChain(Problem& problem, const FrozenGraph& frozen, const std::vector<bool>& trained) : problem_(problem) {
    ChainGraph& index = *problem.index;
    for (auto* list : {&index.forward, &index.backward, &index.weight, &index.updates}) {
      for (OpId& op : *list) op = op == no_op ? no_op : frozen.ops[op.index];
    }
    std::erase(index.updates, no_op);
    std::size_t next = 0;
    for (std::size_t t = 0; t < trained.size() && next < problem.chain->parameters.size(); ++t) {
      if (problem.graph.tensors[t].kind == TensorKind::parameter)
        problem.chain->parameters[next++].trained = trained[t];
    }
    problem.graph = frozen.graph;
    std::vector<Stage>& stages = problem.chain->stages;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (has_backward(i)) break;
      first_ = i + 1;
      leave_out_backward(i);
    }
    for (std::size_t i = first_; i < stages.size(); ++i) shorten_backward(i);
    for (std::size_t i = 0; i < stages.size(); ++i) take_times(i);
  }

 private:
  Op& op(OpId id) { return problem_.graph.ops[id.index]; }

  bool has_backward(std::size_t i) const {
    const ChainGraph& index = *problem_.index;
    return index.backward[i] != no_op || (!index.weight.empty() && index.weight[i] != no_op);
  }

  /// The forward keeps nothing and takes what it takes then.
  void leave_out_backward(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    stage.has_backward = false;
    stage.saved = stage.output;
    stage.inner.clear();
    stage.boundary_uses.clear();
    stage.backward = stage.backward_weight = Seconds{0};
    stage.input_gradient = stage.backward_workspace = stage.backward_accumulate_workspace = Bytes{0};
    stage.forward_workspace = stage.forward_nograd_workspace;
    Op& forward = op(problem_.index->forward[i]);
    if (forward.duration && forward.nograd_duration && forward.duration->value > 0) {
      take_share(forward, *forward.nograd_duration / *forward.duration);
    }
    forward.workspace = forward.nograd_workspace.value_or(forward.workspace);
    forward.nograd_duration.reset();
    forward.nograd_workspace.reset();
  }

  bool is_trained(std::size_t i) {
    const ChainGraph& index = *problem_.index;
    const OpId id = index.weight.empty() ? index.backward[i] : index.weight[i];
    if (id == no_op) return false;
    return std::ranges::any_of(op(id).outputs,
                               [&](TensorId t) { return problem_.graph[t].kind == TensorKind::parameter_gradient; });
  }

  /// By the part that is not needed, where the trace says how long that is: the gradients of the parameters of a frozen
  /// stage, and that of the input of the first one.
  void shorten_backward(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    const bool trained = is_trained(i), is_first = i == first_ && i > 0;
    if (is_first) stage.input_gradient = Bytes{0};
    if (!trained && stage.parameter_gradient) stage.parameter_gradient = Bytes{0};
    const bool is_split = !problem_.index->weight.empty(), is_whole = trained && !is_first;
    if (is_split || is_whole || !stage.has_backward_weight || stage.backward.value <= 0) return;
    const double weight = stage.backward_weight / stage.backward, share = trained ? weight : 1 - weight;
    take_share(op(problem_.index->backward[i]), share);
    weight_share_.try_emplace(i, trained ? 1 : 0);
  }

  void take_times(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    const ChainGraph& index = *problem_.index;
    if (!stage.has_backward) stage.forward = stage.forward_nograd = seconds(index.forward[i]);
    if (!weight_share_.contains(i)) return;
    stage.backward = seconds(index.backward[i]);
    stage.backward_weight = weight_share_.at(i) * stage.backward;
  }

  Seconds seconds(OpId id) const { return duration_on(problem_, id, DeviceId{0}, Saving::keep); }

  Problem& problem_;
  std::size_t first_ = 0;                       // stage with a backward
  std::map<std::size_t, double> weight_share_;  // of the backward that is left, where that is not the trace's
};

class PrefixCut {
 public:
  PrefixCut(Problem problem, std::uint32_t first) : made_{std::move(problem), {}}, first_(first) {}

  std::variant<WithoutPrefix, std::string> run() {
    Graph& graph = made_.problem.graph;
    std::vector<bool> keeps_op(graph.ops.size()), was_read = named_tensors(graph);
    std::set<TensorId> made_before;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      keeps_op[o] = op.phase != Phase::forward || op.stage >= first_;
      if (!keeps_op[o]) made_before.insert(op.outputs.begin(), op.outputs.end());
    }
    const std::vector<OpId> ops = keep_ops(graph, keeps_op);
    if (std::optional<std::string> why = store(made_before)) return *std::move(why);
    std::vector<bool> keeps = named_tensors(graph);
    for (std::size_t t = 0; t < keeps.size(); ++t) {
      if (!was_read[t] && graph.tensors[t].kind == TensorKind::parameter) keeps[t] = true;
    }
    if (made_.problem.chain) cut_chain(ops, keeps);
    keep_tensors(graph, keeps);
    return std::move(made_);
  }

 private:
  /// What later ops read of it.
  std::optional<std::string> store(const std::set<TensorId>& made_before) {
    Graph& graph = made_.problem.graph;
    std::map<StorageId, TensorId> stored;
    for (const Op& op : graph.ops) {
      for (const TensorId t : op.mutates) {
        if (made_before.contains(t)) return no_store(op, t);
      }
      for (const TensorId t : op.inputs) {
        if (!made_before.contains(t)) continue;
        const auto [other, is_first] = stored.try_emplace(graph[t].storage, t);
        if (other->second != t) {
          return "'" + graph[t].name + "' and '" + graph[other->second].name + "' share a storage, and both are read";
        }
        if (!is_first) continue;
        graph.tensors[t.index].kind = TensorKind::input;
        made_.stored += graph[t].bytes;
      }
    }
    return std::nullopt;
  }

  std::string no_store(const Op& op, TensorId t) const {
    return "'" + op.name + "' overwrites '" + made_.problem.graph[t].name + "', which would be stored";
  }

  /// Stages and boundaries count from the first one that is left; so do the ops, and the names of boundaries.
  void cut_chain(const std::vector<OpId>& ops, const std::vector<bool>& keeps) {
    Chain& chain = *made_.problem.chain;
    ChainGraph& index = *made_.problem.index;
    const auto cut = static_cast<std::ptrdiff_t>(first_);
    const bool are_numbered = has_numbered_boundaries(chain);
    chain.input = boundary_bytes(chain, first_);
    keep_parameters(chain, keeps);
    chain.stages.erase(chain.stages.begin(), chain.stages.begin() + cut);
    if (!chain.boundaries.empty()) chain.boundaries.erase(chain.boundaries.begin(), chain.boundaries.begin() + cut);
    for (auto* list : {&index.forward, &index.backward, &index.weight}) {
      if (!list->empty()) list->erase(list->begin(), list->begin() + cut);
    }
    for (auto* list : {&index.forward, &index.backward, &index.weight, &index.updates}) {
      for (OpId& op : *list) op = op == no_op ? no_op : ops[op.index];
    }
    Graph& graph = made_.problem.graph;
    for (Op& op : graph.ops) op.stage -= op.phase == Phase::update ? 0 : first_;
    keep_input_for(index.backward.front());
    if (!index.weight.empty()) keep_input_for(index.weight.front());
    if (are_numbered) rename_boundaries();
  }

  /// Whether boundaries are called by their place.
  static bool has_numbered_boundaries(const Chain& chain) {
    for (std::size_t i = 0; i < chain.boundaries.size(); ++i) {
      const auto has_number = [&](std::uint32_t t) { return chain.tensors[t].name == "x" + std::to_string(i); };
      if (!std::ranges::all_of(chain.boundaries[i], has_number)) return false;
    }
    return true;
  }

  /// The input of a chain stays until the first stage's backward.
  void keep_input_for(OpId backward) {
    if (backward == no_op) return;
    Graph& graph = made_.problem.graph;
    std::vector<TensorId>& inputs = graph.ops[backward.index].inputs;
    for (const TensorId t : graph[made_.problem.index->forward.front()].inputs) {
      const bool is_new = graph[t].kind == TensorKind::input && std::ranges::find(inputs, t) == inputs.end();
      if (is_new) inputs.push_back(t);
    }
  }

  void keep_parameters(Chain& chain, const std::vector<bool>& keeps) {
    std::vector<std::uint32_t> place(chain.parameters.size());
    std::vector<Parameter> kept;
    std::size_t next = 0;
    for (std::size_t t = 0; t < keeps.size() && next < place.size(); ++t) {
      if (made_.problem.graph.tensors[t].kind != TensorKind::parameter) continue;
      place[next] = static_cast<std::uint32_t>(kept.size());
      if (keeps[t]) kept.push_back(chain.parameters[next]);
      ++next;
    }
    chain.parameters = std::move(kept);
    for (std::size_t s = first_; s < chain.stages.size(); ++s) {
      for (std::uint32_t& p : chain.stages[s].parameters) p = place[p];
    }
    std::erase_if(chain.shared, [&](const SharedParameter& shared) {
      return std::ranges::any_of(shared.stages, [&](std::uint32_t s) { return s < first_; });
    });
    for (SharedParameter& shared : chain.shared) {
      shared.parameter = place[shared.parameter];
      for (std::uint32_t& s : shared.stages) s -= first_;
    }
  }

  void rename_boundaries() {
    Chain& chain = *made_.problem.chain;
    for (std::size_t i = 0; i < chain.boundaries.size(); ++i) {
      for (const std::uint32_t t : chain.boundaries[i]) chain.tensors[t].name = "x" + std::to_string(i);
    }
    const std::size_t stages = chain.stages.size();
    for (const std::string before : {"x", "gradient of x"}) {
      std::map<std::string, std::string> names;
      for (std::size_t i = 0; i <= stages; ++i) {
        names[before + std::to_string(i + first_)] = before + std::to_string(i);
      }
      for (Tensor& tensor : made_.problem.graph.tensors) {
        const bool is_boundary = tensor.kind != TensorKind::parameter && tensor.kind != TensorKind::optimizer_state;
        const auto found = names.find(tensor.name);
        if (is_boundary && found != names.end()) tensor.name = found->second;
      }
    }
  }

  WithoutPrefix made_;
  std::uint32_t first_;
};

}  // namespace

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

std::variant<Problem, std::string> with_frozen(const Problem& problem, const std::vector<bool>& trained) {
  std::variant<FrozenGraph, std::string> made = freeze(problem.graph, trained);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  const auto& frozen = std::get<FrozenGraph>(made);
  Problem changed = problem;
  if (changed.chain) {
    FrozenChain(changed, frozen, trained);
  } else {
    changed.graph = frozen.graph;
  }
  return changed;
}

std::vector<std::uint32_t> forward_stages(const Graph& graph) {
  std::set<std::uint32_t> stages;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) stages.insert(op.stage);
  }
  return {stages.begin(), stages.end()};
}

std::variant<WithoutPrefix, std::string> without_prefix(Problem problem, std::uint32_t first) {
  return PrefixCut(std::move(problem), first).run();
}

}  // namespace plimsoll
