#include "strategies/models/chain_part.h"

#include <algorithm>
#include <span>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Tensors that one of the first ops makes and one of the others reads, parameters aside, in the order of making.
std::vector<TensorId> handed_over(const Graph& graph, std::span<const OpId> from, std::span<const OpId> to) {
  std::vector<bool> is_read(graph.tensors.size(), false);
  for (const OpId op : to) {
    if (op == no_op) continue;
    for (const TensorId t : graph[op].inputs) is_read[t.index] = true;
  }
  std::vector<TensorId> tensors;
  for (const OpId op : from) {
    if (op == no_op) continue;
    for (const TensorId t : graph[op].outputs) {
      if (is_read[t.index] && per_micro_batch(graph[t].kind)) tensors.push_back(t);
    }
  }
  return tensors;
}

/// A backward in two parts takes what the fuller one takes, with what the first makes for the second.
void take_both_parts(Stage& stage) {
  const Bytes fresh = stage.backward_workspace, accumulating = stage.backward_accumulate_workspace;
  const Bytes weight = stage.backward_weight_workspace.value_or(fresh);
  const Bytes added = stage.backward_weight_workspace
                          ? stage.backward_weight_accumulate_workspace.value_or(*stage.backward_weight_workspace)
                          : accumulating;
  stage.backward_workspace = stage.weight_made + std::max(stage.backward_input_workspace.value_or(fresh), weight);
  stage.backward_accumulate_workspace =
      stage.weight_made + std::max(stage.backward_input_workspace.value_or(accumulating), added);
}

/// Beside the gradients that the part makes, and the states of the problem's optimizer: what ranks take gradients
/// through to sum them, and the states of updates that a trace has of its own.
Bytes bytes_beside_gradients(const Problem& problem, const ChainPart& part) {
  const Graph& graph = problem.graph;
  std::vector<bool> made_here(graph.storages, false);
  Bytes sum;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) {
      const bool is_here = part.first <= op.stage && op.stage < part.last;
      for (const TensorId t : op.outputs) {
        if (is_here && graph[t].kind == TensorKind::parameter_gradient) made_here[graph[t].storage.index] = true;
      }
      continue;
    }
    const auto is_made_here = [&](TensorId t) { return made_here[graph[t].storage.index]; };
    const bool counts = collective_of(op) || problem.optimizer == Optimizer::none;
    if (!counts || std::ranges::none_of(op.inputs, is_made_here)) continue;
    for (const TensorId t : op.inputs) sum += graph[t].kind == TensorKind::optimizer_state ? graph[t].bytes : Bytes{0};
  }
  return sum;
}

}  // namespace

PartId part_of_stage(const Problem& problem, const Partition& partition, std::size_t stage) {
  const OpId op = problem.index->forward[stage];
  for (std::size_t p = 0; p < partition.parts.size(); ++p) {
    const Part& part = partition.parts[p];
    if (std::ranges::find(part.ops, op) != part.ops.end()) return id_at<PartId>(p);
  }
  EXPECTS(false && "every stage is in a part");
  return {};
}

std::vector<TensorId> forward_across(const Problem& problem, std::size_t j) {
  const std::span<const OpId> forward = problem.index->forward;
  return handed_over(problem.graph, forward.first(j), forward.subspan(j));
}

std::vector<TensorId> backward_across(const Problem& problem, std::size_t j) {
  const std::span<const OpId> backward = problem.index->backward;
  return handed_over(problem.graph, backward.subspan(j), backward.first(j));
}

ChainRange chain_range(const Problem& problem, const Part& part) {
  EXPECTS(problem.chain && !part.ops.empty());
  const std::vector<Stage>& stages = problem.chain->stages;
  ChainRange range{.first = stages.size()};
  for (const OpId op : part.ops) {
    range.first = std::min<std::size_t>(range.first, problem.graph[op].stage);
    range.last = std::max<std::size_t>(range.last, problem.graph[op].stage + 1);
  }
  range.awaits = range.last < stages.size() || part.cut_before_backward;
  const std::span own = std::span(stages).subspan(range.first, range.last - range.first);
  const auto trained = std::ranges::find(own, true, &Stage::has_backward);
  EXPECTS(trained != own.end());
  range.forward_only = static_cast<std::size_t>(trained - own.begin());
  return range;
}

ChainPart chain_part(const Problem& problem, const Part& part) {
  const std::size_t stages = problem.chain->stages.size();
  ChainPart result{chain_range(problem, part), {}};
  result.chain.name = problem.chain->name;
  result.chain.source = problem.chain->source;
  std::vector<Stage>& own = result.chain.stages;
  own.assign(problem.chain->stages.begin() + static_cast<std::ptrdiff_t>(result.first),
             problem.chain->stages.begin() + static_cast<std::ptrdiff_t>(result.last));
  for (std::size_t i = result.first; i < result.last && !problem.index->weight.empty(); ++i) {
    if (problem.index->weight[i] != no_op) take_both_parts(own[i - result.first]);
  }
  own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(result.forward_only));
  result.chain.input = boundary_bytes(*problem.chain, result.first + result.forward_only);
  for (Stage& stage : own) stage.tensors.reset();
  if (result.awaits) {
    Stage& awaiting = own.emplace_back();
    awaiting.name = "(await output gradient)";
    if (result.last < stages) awaiting.input_gradient = problem.chain->stages[result.last].input_gradient;
  }
  std::vector<bool> here(problem.chain->parameters.size(), false), elsewhere = here;
  for (std::size_t i = 0; i < stages; ++i) {
    std::vector<bool>& uses = result.first <= i && i < result.last ? here : elsewhere;
    for (const std::uint32_t p : problem.chain->stages[i].parameters) uses[p] = true;
  }
  result.chain.parameters.reserve(here.size());
  for (std::size_t p = 0; p < here.size(); ++p) {
    const bool lives_here = here[p] || (!elsewhere[p] && result.first == 0);
    const Parameter& whole = problem.chain->parameters[p];
    result.chain.parameters.push_back(
        lives_here ? whole
                   : Parameter{{}, {}, whole.dtype, whole.trained, whole.states});  // its name says nothing here
  }
  return result;
}

ChainModel chain_model(const Problem& problem, const ChainPart& part) {
  return chain_model(part.chain, {.gradients = problem.gradients,
                                  .optimizers = problem.optimizers(),
                                  .states = problem.states.value_or(States::by_dtype),
                                  .keeps_averages = problem.keeps_averages,
                                  .micro_batches = problem.micro_batches,
                                  .also_resident = bytes_beside_gradients(problem, part)});
}

Tape chain_tape(const Problem& problem, const Partition& partition, PartId id, const ChainRange& part,
                const ChainSequence& sequence) {
  const Graph& graph = problem.graph;
  const ChainGraph& index = *problem.index;
  Tape tape;
  const auto issue = [&tape](Action action) { tape.actions.push_back(action); };
  if (part.first > 0) {
    for (const TensorId t : forward_across(problem, part.first)) issue(on_tensor(ActionKind::receive, t));
  }
  const std::size_t planned = part.first + part.forward_only;
  for (std::size_t stage = part.first; stage < planned; ++stage) {
    issue(run(index.forward[stage], Saving::nothing));
  }
  const bool weights_apart = partition.parts[id.index].cut_before_weights;
  std::vector<OpId> weights;
  bool sent = false;
  for (const ChainStep& step : sequence) {
    const std::size_t stage = planned + step.stage;
    const bool is_await = part.awaits && stage == part.last;
    if (is_await && step.kind != ChainStep::Kind::backward) continue;
    if (is_await) {
      issue(cut_before(PieceName::backward));
      for (const TensorId t : backward_across(problem, stage)) issue(on_tensor(ActionKind::receive, t));
      continue;
    }
    if (step.kind == ChainStep::Kind::backward) {
      if (index.backward[stage] != no_op) issue(run(index.backward[stage]));
      if (part.first > 0 && stage == part.first) {
        const PartId previous = part_of_stage(problem, partition, part.first - 1);
        for (const TensorId t : backward_across(problem, stage)) {
          issue(on_tensor(ActionKind::send, t, previous));
        }
      }
      const OpId weight = index.weight.empty() ? no_op : index.weight[stage];
      if (weight != no_op && weights_apart) weights.push_back(weight);
      if (weight != no_op && !weights_apart) issue(run(weight));
      continue;
    }
    const bool saves = step.kind == ChainStep::Kind::forward_saving;
    issue(run(index.forward[stage], saves ? Saving::keep : Saving::nothing));
    if (part.last < problem.chain->stages.size() && stage + 1 == part.last && !sent) {
      sent = true;
      const PartId next = part_of_stage(problem, partition, part.last);
      for (const TensorId t : forward_across(problem, part.last)) {
        issue(on_tensor(ActionKind::send, t, next));
      }
    }
  }
  if (weights_apart) issue(cut_before(PieceName::weights));
  for (const OpId weight : weights) issue(run(weight));
  return with_drops(graph, std::move(tape));
}

}  // namespace plimsoll
