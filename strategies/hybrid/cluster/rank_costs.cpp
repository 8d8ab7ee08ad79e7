#include "strategies/hybrid/cluster/rank_costs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/model/graph_updates.h"
#include "sim/model/shared_parameters.h"
#include "sim/model/stage_chain.h"
#include "strategies/hybrid/cluster/repeated_layers.h"
#include "strategies/pipelining/cuts/cuts.h"

namespace plimsoll {
namespace {

Seconds duration(const Problem& problem, std::size_t op) {
  return duration_on(problem, id_at<OpId>(op), DeviceId{0}, Saving::keep);
}

/// By name of a parameter: what is updated with it.
std::map<std::string, RankParameter> updates_by_name(const Problem& problem) {
  std::map<std::string, RankParameter> found;
  const Graph& graph = problem.graph;
  const std::optional<MemoryId> host = memory_at(problem.platform, DeviceId{0}, place::host);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::update || !updates_parameters(op)) continue;
    RankParameter each{.bytes = {}, .states = {}, .update = duration(problem, o), .host_update = {}};
    if (host) each.host_update = seconds_on_host(problem, id_at<OpId>(o), *host).value_or(Seconds{});
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
    own.host_update += each.host_update;
  }
  return found;
}

/// The stages [first, last) that a device has as one part.
struct Range {
  std::size_t first, last;
};

/// By device, its parts in their order.
std::vector<std::vector<Range>> placed(const std::vector<std::size_t>& first, std::size_t model_stages,
                                       std::uint32_t devices, PipelineShape shape) {
  std::vector<std::vector<Range>> parts(devices);
  for (std::size_t g = 0; g < first.size(); ++g) {
    const bool goes_back = shape == PipelineShape::v && g >= devices;
    const std::size_t device = goes_back ? 2 * std::size_t{devices} - 1 - g : g % devices;
    parts[device].push_back({first[g], g + 1 < first.size() ? first[g + 1] : model_stages});
  }
  return parts;
}

class OfDevice {
 public:
  explicit OfDevice(const RankCosts& costs) : costs_(costs) {}

  DeviceCosts of(const std::vector<Range>& parts) {
    made_ = {};
    for (std::size_t s = 0; s < parts.front().first; ++s) {
      const RankStage& stage = costs_.stages[s];
      made_.before += stage.forward;
      made_.behind += stage.backward;
      made_.behind_input += stage.backward - stage.weight;
    }
    std::set<std::uint32_t> parameters;
    for (const Range& part : parts) add(part, parameters, part.first == parts.front().first);
    for (const Range& part : parts) made_.read_again += inner_parameters(part);
    for (const std::uint32_t p : parameters) {
      made_.parameters += costs_.parameters[p].bytes;
      if (costs_.parameters[p].trained) made_.trained += costs_.parameters[p].bytes;
      made_.states += costs_.parameters[p].states;
      made_.updates += costs_.parameters[p].update;
      made_.host_updates += costs_.parameters[p].host_update;
    }
    return made_;
  }

 private:
  Bytes trained_in(std::size_t first, std::size_t last) const {
    std::set<std::uint32_t> own;
    for (std::size_t s = first; s < last; ++s) {
      own.insert(costs_.stages[s].parameters.begin(), costs_.stages[s].parameters.end());
    }
    Bytes sum;
    for (const std::uint32_t p : own) sum += costs_.parameters[p].trained ? costs_.parameters[p].bytes : Bytes{};
    return sum;
  }

  Bytes inner_parameters(const Range& part) const {
    const std::size_t first = std::max<std::size_t>(part.first, 1);
    return trained_in(first, std::max(first, std::min(part.last, costs_.stages.size() - 1)));
  }

  void add(const Range& part, std::set<std::uint32_t>& parameters, bool is_first) {
    Seconds forward, backward, weight, longest_forward, again;
    Bytes saved, inputs, gradients;
    for (std::size_t s = part.first; s < part.last; ++s) {
      const RankStage& stage = costs_.stages[s];
      backward += stage.backward;
      weight += stage.weight;
      again += stage.again;
      longest_forward = std::max(longest_forward, stage.again);
      saved += stage.inner;
      forward += stage.forward;
      if (s > part.first) inputs += costs_.stages[s - 1].output;
      made_.at_repeat = std::max(made_.at_repeat, inputs + stage.inner);
      // A parameter that several of its stages read has one gradient.
      if (std::ranges::none_of(stage.parameters, [&](std::uint32_t p) { return parameters.contains(p); })) {
        gradients += stage.gradients;
      }
      parameters.insert(stage.parameters.begin(), stage.parameters.end());
    }
    saved += inputs;
    made_.forward += forward;
    made_.backward += backward;
    made_.longest_pass = std::max({made_.longest_pass, forward, backward - weight});
    made_.last_trained = trained_in(part.last - 1, part.last);
    made_.weight += weight;
    made_.again += again - longest_forward;  // the last stage of a part has just run
    made_.last_backward = std::max(made_.last_backward, backward + again);
    made_.last_weight = std::max(made_.last_weight, weight);
    made_.saved += saved;
    made_.inputs += inputs;
    made_.gradients += gradients;
    made_.least_saved = is_first ? saved : std::min(made_.least_saved, saved);
    made_.least_inputs = is_first ? inputs : std::min(made_.least_inputs, inputs);
    made_.least_gradients = is_first ? gradients : std::min(made_.least_gradients, gradients);
    const Bytes trained = trained_in(part.first, part.last);
    made_.least_trained = is_first ? trained : std::min(made_.least_trained, trained);
  }

  const RankCosts& costs_;
  DeviceCosts made_;
};

struct OpSeconds {
  Seconds all, backward;
};

/// By stage, in the order of their forwards.
std::vector<OpSeconds> seconds_of_ops(const Problem& problem) {
  std::map<std::uint32_t, std::size_t> number;
  std::vector<OpSeconds> made;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    const Op& op = problem.graph.ops[o];
    if (op.phase == Phase::update || runs_beside(op)) continue;
    const auto [place, is_new] = number.try_emplace(op.stage, made.size());
    if (is_new) made.emplace_back();
    if (op.is_view) continue;
    const Seconds own = duration(problem, o);
    made[place->second].all += own;
    if (is_backward(op.phase)) made[place->second].backward += own;
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
  const std::vector<OpSeconds> by_ops = seconds_of_ops(of_rank);
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
    const bool is_kept = s + 1 < chain.stages.size() && (stage.keeps_output || chain.stages[s + 1].keeps_input);
    costs.stages.push_back({.forward = stage.forward,
                            .backward = stage.backward,
                            .weight = weight_of(stage),
                            .again = std::min(stage.forward, stage.forward_nograd),
                            .inner = stage.saved - stage.output,
                            .output = is_kept ? stage.output : Bytes{},
                            .gradients = stage.parameter_gradient.value_or(trained_bytes(chain, stage)),
                            .ops = s < by_ops.size() ? by_ops[s].all : Seconds{},
                            .backward_ops = s < by_ops.size() ? by_ops[s].backward : Seconds{},
                            .parameters = stage.parameters});
  }
  costs.chain = chain;
  sum_ops(costs);
  return costs;
}

std::vector<DeviceCosts> device_costs(const RankCosts& costs, const Chain& cut, std::uint32_t stages,
                                      std::uint32_t chunks, PipelineShape shape) {
  const std::vector<std::size_t> first = cut_stages(cut, std::size_t{stages} * chunks, CutRule::balanced);
  OfDevice of(costs);
  std::vector<DeviceCosts> made;
  for (const std::vector<Range>& parts : placed(first, costs.stages.size(), stages, shape)) {
    made.push_back(of.of(parts));
  }
  return made;
}

}  // namespace plimsoll
