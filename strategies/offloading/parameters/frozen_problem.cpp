#include "strategies/offloading/parameters/frozen_problem.h"

#include <algorithm>
#include <map>

#include "sim/core/schedule.h"
#include "strategies/offloading/parameters/frozen_graph.h"

namespace plimsoll {
namespace {

/// The op takes this share of its time, and of what a time on another device follows from.
void take_share(Op& op, double share) {
  if (op.duration) op.duration = share * *op.duration;
  if (op.flops) op.flops = Flops{share * op.flops->count};
  if (op.bytes_moved)
    op.bytes_moved = Bytes{static_cast<std::int64_t>(share * static_cast<double>(op.bytes_moved->count))};
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

}  // namespace

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

}  // namespace plimsoll
