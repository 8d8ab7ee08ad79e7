#include "sim/measure/rank_costs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/measure/least_costs.h"
#include "sim/model/graph_updates.h"
#include "sim/model/repeated_layers.h"
#include "sim/model/shared_parameters.h"
#include "sim/model/stage_chain.h"

namespace plimsoll {
namespace {

Seconds duration(const Problem& problem, std::size_t op) {
  return duration_on(problem, id_at<OpId>(op), DeviceId{0}, Saving::keep);
}

/// What the update moves over a host's processor and memory; nothing where that cannot update.
Bytes moved_on(const Problem& problem, OpId update, MemoryId host) {
  const std::optional<BytesPerSecond> traffic = update_traffic(problem.platform[host]);
  const std::optional<Seconds> time = seconds_on_host(problem, update, host);
  if (!traffic || !time) return {};
  return Bytes{static_cast<std::int64_t>(time->value * traffic->value)};
}

/// By name of a parameter: what is updated with it.
std::map<std::string, RankParameter> updates_by_name(const Problem& problem) {
  std::map<std::string, RankParameter> found;
  const Graph& graph = problem.graph;
  const std::optional<MemoryId> host = memory_at(problem.platform, DeviceId{0}, place::host);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::update || !updates_parameters(op)) continue;
    RankParameter each{.bytes = {}, .states = {}, .update = duration(problem, o), .host_moves = {}};
    if (host) each.host_moves = moved_on(problem, id_at<OpId>(o), *host);
    std::set<StorageId> seen;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::optimizer_state && seen.insert(graph[t].storage).second) {
        each.states += graph[t].bytes;
      }
    }
    const auto parameter =
        std::ranges::find_if(op.inputs, [&](TensorId t) { return graph[t].kind == TensorKind::parameter; });
    if (parameter == op.inputs.end()) continue;
    RankParameter& own = found[graph[*parameter].name];
    own.states += each.states;
    own.update += each.update;
    own.host_moves += each.host_moves;
  }
  return found;
}

/// Of a stage op by op.
struct OpCosts {
  Seconds all, backward;
  Bytes read_and_made, made;  ///< of a micro-batch's values and workspaces while one of them runs: at most
};

/// By stage, in the order of their forwards.
std::vector<OpCosts> costs_of_ops(const Problem& problem) {
  std::map<std::uint32_t, std::size_t> number;
  std::vector<OpCosts> made;
  StorageSum values(problem.graph);
  const auto add_values = [&](const std::vector<TensorId>& tensors) {
    for (const TensorId t : tensors) {
      if (per_micro_batch(problem.graph[t].kind)) values.add(t);
    }
  };
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    const Op& op = problem.graph.ops[o];
    if (op.phase == Phase::update || runs_beside(op)) continue;
    const auto [place, is_new] = number.try_emplace(op.stage, made.size());
    if (is_new) made.emplace_back();
    if (op.is_view) continue;
    const Seconds own = duration(problem, o);
    OpCosts& costs = made[place->second];
    costs.all += own;
    if (is_backward(op.phase)) costs.backward += own;
    values.restart();
    add_values(op.outputs);
    costs.made = std::max(costs.made, values.sum() + least_workspace(op));
    add_values(op.inputs);
    costs.read_and_made = std::max(costs.read_and_made, values.sum() + least_workspace(op));
  }
  return made;
}

/// What ops one by one take of all stages.
void sum_ops(RankCosts& costs) {
  costs.ops = costs.backward_ops = {};
  for (const RankStage& stage : costs.stages) {
    costs.ops += stage.ops;
    costs.backward_ops += stage.backward_ops;
  }
}

Seconds weight_of(const Stage& stage) {
  return stage.has_backward_weight ? stage.backward_weight : Seconds{};
}

}  // namespace

RankCosts RankCosts::timed_as(const Chain& of) const {
  EXPECTS(of.stages.size() == stages.size());
  RankCosts made = *this;
  made.chain = of;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    made.stages[s].forward = of.stages[s].forward;
    made.stages[s].backward = of.stages[s].backward;
    made.stages[s].weight = weight_of(of.stages[s]);
    made.stages[s].again = std::min(of.stages[s].forward, of.stages[s].forward_nograd);
  }
  return made;
}

std::optional<RankCosts> with_layers(const RankCosts& few, std::uint32_t layers) {
  std::optional<RepeatedLayers> made = with_layers(few.chain, layers);
  if (!made) return std::nullopt;
  RankCosts costs;
  for (std::size_t s = 0; s < made->stage_of.size(); ++s) {
    costs.stages.push_back(few.stages[made->stage_of[s]]);
    costs.stages.back().parameters = made->chain.stages[s].parameters;
  }
  for (const std::uint32_t p : made->parameter_of) costs.parameters.push_back(few.parameters[p]);
  costs.chain = std::move(made->chain);
  sum_ops(costs);
  return costs;
}

bool cost_the_same(const RankCosts& a, const RankCosts& b) {
  return a.stages == b.stages && a.parameters == b.parameters;
}

std::variant<RankCosts, std::string> rank_costs(Problem of_rank) {
  RankCosts costs;
  const std::vector<OpCosts> by_ops = costs_of_ops(of_rank);
  if (!of_rank.chain) {
    std::variant<Problem, std::string> made = as_chain(std::move(of_rank), Backward::whole);
    if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
    of_rank = std::get<Problem>(std::move(made));
  }
  const Chain& chain = *of_rank.chain;
  std::map<std::string, RankParameter> updates = updates_by_name(of_rank);
  for (const Parameter& parameter : chain.parameters) {
    RankParameter& own = costs.parameters.emplace_back(updates[parameter.name]);
    own.bytes = parameter.bytes;
    own.trained = parameter.trained;
  }
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    const Stage& stage = chain.stages[s];
    const OpCosts own = s < by_ops.size() ? by_ops[s] : OpCosts{};
    const bool is_kept = s + 1 < chain.stages.size() && (stage.keeps_output || chain.stages[s + 1].keeps_input);
    costs.stages.push_back({.forward = stage.forward,
                            .backward = stage.backward,
                            .weight = weight_of(stage),
                            .again = std::min(stage.forward, stage.forward_nograd),
                            .inner = stage.saved - stage.output,
                            .output = is_kept ? stage.output : Bytes{},
                            .gradients = stage.parameter_gradient.value_or(trained_bytes(chain, stage)),
                            .ops = own.all,
                            .backward_ops = own.backward,
                            .read_and_made = own.read_and_made,
                            .made = own.made,
                            .parameters = stage.parameters});
  }
  costs.chain = chain;
  sum_ops(costs);
  return costs;
}

}  // namespace plimsoll
