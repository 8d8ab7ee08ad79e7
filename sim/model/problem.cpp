#include "sim/model/problem.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/model/device_classes.h"
#include "sim/model/evaluation_forward.h"
#include "sim/model/graph_updates.h"
#include "sim/model/input_loads.h"
#include "sim/model/shared_parameters.h"
#include "sim/model/update_launches.h"
#include "sim/ops/views.h"

namespace plimsoll {
namespace {

bool has_update(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) { return op.phase == Phase::update; });
}

std::optional<std::string> no_states(const Chain& chain, const ProblemOptions& options) {
  if (options.optimizer == Optimizer::none || options.states != States::fp32) return std::nullopt;
  for (const Parameter& parameter : chain.parameters) {
    const std::string& dtype = dtype_of(chain, parameter);
    if (parameter.trained && !bytes_of_dtype(dtype)) return no_fp32_states(parameter.name, dtype);
  }
  return std::nullopt;
}

States states_taken(const Graph& graph, States asked) {
  std::vector<TensorId> updated;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    std::ranges::copy_if(op.mutates, std::back_inserter(updated),
                         [&](TensorId t) { return graph[t].kind == TensorKind::parameter; });
  }
  return taken(asked, graph, updated);
}

/// Why no averages of parameters can be kept.
std::optional<std::string> no_averages(const ProblemOptions& options, bool has_own_updates) {
  if (!options.keeps_averages) return std::nullopt;
  if (options.optimizer == Optimizer::none) return "averages of parameters follow updates of an optimizer, found none";
  if (!has_own_updates) return std::nullopt;
  return "the trace has updates of its own, which keep what it says: averages of parameters cannot be chosen";
}

/// Why gradients cannot be clipped by the norm of all.
std::optional<std::string> no_clipping(const ProblemOptions& options, bool has_own_updates) {
  if (!options.clips_gradients) return std::nullopt;
  if (options.optimizer == Optimizer::none) return "gradients are clipped for the updates of an optimizer, found none";
  if (has_own_updates) return "the trace has updates of its own, which clip as it says: clipping cannot be chosen";
  if (options.update_kernels != UpdateKernels::megatron) return std::nullopt;
  return "the update kernels 'megatron' count the norm and clipping already: gradients are not clipped once more";
}

/// Why there can be no groups of parameters.
std::optional<std::string> no_groups(const ProblemOptions& options, bool has_own_updates) {
  if (options.parameter_groups.empty()) return std::nullopt;
  if (options.optimizer == Optimizer::none) return "groups of parameters need an optimizer for the rest, found none";
  if (!has_own_updates) return std::nullopt;
  return "the trace has updates of its own, by the optimizers that it says: groups of parameters cannot be chosen";
}

/// Why updates of a graph leave a group without parameters.
std::optional<std::string> empty_group(const Graph& graph, const Optimizers& optimizers) {
  if (optimizers.groups.empty()) return std::nullopt;
  std::vector<std::string> names;
  std::vector<bool> is_used(optimizers.groups.size() + 1, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    for (const TensorId t : op.mutates) {
      if (graph[t].kind != TensorKind::parameter) continue;
      names.push_back(graph[t].name);
      is_used[optimizers.group_of(names.back())] = true;
    }
  }
  const auto empty = std::ranges::find(is_used, false);
  const auto group = static_cast<std::size_t>(empty - is_used.begin());
  if (group >= optimizers.groups.size()) return std::nullopt;
  const Optimizers alone{optimizers.rest, {optimizers.groups[group]}};
  const auto other = std::ranges::find_if(names, [&](const std::string& name) { return alone.group_of(name) == 0; });
  if (other == names.end()) return "the group '" + alone.groups[0].pattern + "' matches no trained parameter's name";
  return "no parameter is left for the group '" + alone.groups[0].pattern + "': '" + *other + "' is in '" +
         optimizers.groups[optimizers.group_of(*other)].pattern + "', which comes before it";
}

/// An update of a gradient that parameters of a stage have together is by one optimizer.
std::optional<std::string> no_common_group(const Chain& chain, const ProblemOptions& options) {
  if (options.parameter_groups.empty()) return std::nullopt;
  const Optimizers optimizers{options.optimizer, options.parameter_groups};
  for (const Stage& stage : chain.stages) {
    if (!own_gradient(chain, stage)) continue;
    std::set<std::size_t> groups;
    for (const std::uint32_t p : stage.parameters) {
      if (chain.parameters[p].trained) groups.insert(optimizers.group_of(chain.parameters[p].name));
    }
    if (groups.size() > 1) {
      return "stage '" + stage.name + "' has one gradient for its parameters, which are of several groups";
    }
  }
  return std::nullopt;
}

/// Parameter gradients are whole after the last micro-batch only.
std::optional<std::string> early_reader(const Problem& problem) {
  if (problem.micro_batches == 1) return std::nullopt;
  for (const Op& op : problem.graph.ops) {
    if (op.phase == Phase::update) continue;
    for (const TensorId t : op.inputs) {
      if (problem.graph[t].kind != TensorKind::parameter_gradient) continue;
      return "'" + op.name + "' reads '" + problem.graph[t].name +
             "', which is a sum over all micro-batches: such a graph runs with one micro-batch";
    }
  }
  return std::nullopt;
}

/// What the optimizer and averages keep for a parameter.
Bytes kept_states(const Chain& chain, const Parameter& parameter, const Optimizers& optimizers, States states) {
  const std::string& dtype = dtype_of(chain, parameter);
  return state_bytes(optimizers.of(parameter.name), states, parameter.bytes, dtype) +
         average_bytes(states, parameter.bytes, dtype);
}

/// Launches, averages and clipping as the problem says. Planners of chains take the bytes of states from the chain.
void finish_updates(Problem& problem, Chain* chain, States states) {
  const Optimizers optimizers = problem.optimizers();
  launch_together(problem.graph, optimizers, problem.update_kernels);
  if (problem.keeps_averages) {
    keep_averages(problem.graph, states, problem.update_kernels);
    for (std::size_t p = 0; chain != nullptr && p < chain->parameters.size(); ++p) {
      Parameter& parameter = chain->parameters[p];
      if (parameter.trained) parameter.states = kept_states(*chain, parameter, optimizers, states);
    }
  }
  if (problem.clips_gradients) count_clipping(problem.graph, problem.update_kernels);
}

/// A workspace below 0 is of a whole backward that reads its stage's inner tensors as they are. A part of it may keep
/// them, and of packed ones fewer bytes die.
void let_nothing_die_early(Chain& chain) {
  for (Stage& stage : chain.stages) {
    stage.backward_workspace = std::max(Bytes{}, stage.backward_workspace);
    stage.backward_accumulate_workspace = std::max(Bytes{}, stage.backward_accumulate_workspace);
  }
}

}  // namespace

std::variant<Problem, std::string> make_problem(std::variant<Chain, Graph> model, Platform platform,
                                                const ProblemOptions& options) {
  EXPECTS(!platform.devices.empty() && options.micro_batches > 0);
  Problem problem;
  problem.micro_batches = options.micro_batches;
  problem.optimizer = options.optimizer;
  problem.parameter_groups = options.parameter_groups;
  problem.update_kernels = options.update_kernels;
  problem.keeps_averages = options.keeps_averages;
  problem.clips_gradients = options.clips_gradients;
  problem.evaluation = options.evaluation;
  problem.gradients = options.gradients;
  problem.platform = std::move(platform);
  const Device& device = problem.platform.devices.front();

  if (Chain* chain = std::get_if<Chain>(&model)) {
    Chain whole = with_loss(std::move(*chain));
    if (options.backward == Backward::split) {
      for (const Stage& stage : whole.stages) {
        if (!stage.has_backward_weight)
          return "stage '" + stage.name + "' gives no backward_weight_s to split backward by";
      }
    }
    if (options.backward == Backward::split && options.inner == Inner::apart && lists_saved(whole)) {
      return "which of the tensors that a stage saves stay for its weight gradient is not known, so that they cannot "
             "be "
             "packed where backwards are split";
    }
    if (std::optional<std::string> why = no_states(whole, options)) return std::move(*why);
    if (std::optional<std::string> why = no_groups(options, false)) return std::move(*why);
    if (std::optional<std::string> why = no_common_group(whole, options)) return std::move(*why);
    if (std::optional<std::string> why = no_averages(options, false)) return std::move(*why);
    if (std::optional<std::string> why = no_clipping(options, false)) return std::move(*why);
    if (options.backward == Backward::split || options.inner == Inner::apart) let_nothing_die_early(whole);
    problem.index = chain_graph(whole, problem.optimizers(), options.backward, options.states, options.inner);
    problem.graph = std::move(problem.index->graph);
    problem.index->graph = {};
    if (std::optional<std::string> why = empty_group(problem.graph, problem.optimizers())) return std::move(*why);
    if (options.optimizer != Optimizer::none) problem.states = states_taken(problem.graph, options.states);
    finish_updates(problem, &whole, options.states);
    const bool are_counted =
        std::ranges::all_of(whole.stages, [](const Stage& s) { return s.forward_kernels && s.backward_kernels; });
    if (device.host_launch > Seconds{0} && !are_counted) {
      problem.notes.push_back(
          "the trace does not say how many kernels each stage is (forward_kernels, "
          "backward_kernels), so their issue takes no time");
    }
    ScaledChain scaled = scaled_to(std::move(whole), device);
    if (!scaled.refused.empty()) return std::move(scaled.refused);
    problem.chain = std::move(scaled.chain);
  } else {
    Graph& graph = std::get<Graph>(model);
    if (has_update(graph) && options.states == States::fp32) {
      return "the trace has updates of its own, whose states are as it says: states cannot be chosen";
    }
    if (std::optional<std::string> why = no_groups(options, has_update(graph))) return std::move(*why);
    if (std::optional<std::string> why = no_averages(options, has_update(graph))) return std::move(*why);
    if (std::optional<std::string> why = no_clipping(options, has_update(graph))) return std::move(*why);
    if (options.optimizer != Optimizer::none && !has_update(graph)) {
      std::variant<UpdatedGraph, std::string> updated =
          graph_with_updates(std::move(graph), problem.optimizers(), options.states);
      if (std::string* why = std::get_if<std::string>(&updated)) return std::move(*why);
      problem.graph = std::move(std::get<UpdatedGraph>(updated).graph);
      if (std::optional<std::string> why = empty_group(problem.graph, problem.optimizers())) return std::move(*why);
      finish_updates(problem, nullptr, options.states);
      graph = std::move(problem.graph);
      problem.states = std::get<UpdatedGraph>(updated).states;
    }
    WithoutViews named = without_views(std::move(graph));
    problem.graph = std::move(named.graph);
    problem.view_time = named.view_time;
  }
  if (std::optional<std::string> why = early_reader(problem)) return std::move(*why);
  if (options.evaluation) {
    if (std::optional<std::string> why = no_evaluation(problem.graph)) return std::move(*why);
  }
  find_loads(problem.graph, problem.platform);
  for (const DeviceId one : device_classes(problem.platform, problem.platform.devices.size()).one) {
    const Device& each = problem.platform[one];
    if (std::optional<std::string> why = no_times(problem.graph, each)) return std::move(*why);
    problem.times_rescaled |= !times_hold(problem.graph.source, each);
  }
  return problem;
}

bool has_own_states(const Problem& problem) {
  const States states = problem.states.value_or(States::by_dtype);
  return std::ranges::any_of(problem.chain->parameters, [&](const Parameter& p) {
    return p.states && !(problem.keeps_averages && p.trained &&
                         *p.states == kept_states(*problem.chain, p, problem.optimizers(), states));
  });
}

void remake_graph(Problem& problem, Backward backward, Inner inner) {
  const States states = problem.states.value_or(States::by_dtype);
  for (Parameter& parameter : problem.chain->parameters) parameter.states.reset();
  problem.index = chain_graph(*problem.chain, problem.optimizers(), backward, states, inner);
  problem.graph = std::exchange(problem.index->graph, {});
  finish_updates(problem, &*problem.chain, states);
}

namespace {

/// What adding an op's parameter gradients to those of earlier micro-batches takes, where kernels are timed as
/// measured: the gradient is read, the sum is read and written. Of m micro-batches the first one adds nothing if no
/// gradient exists, so that each has (m - 1) / m of it. Sums in a wider type than the parameter's are made by the
/// product itself (gradient_accumulation_fusion of Megatron-LM, its default), which hides them.
Seconds accumulation(const Problem& problem, const Op& op, const Device& device) {
  const double m = problem.micro_batches;
  const double share = problem.gradients == Gradients::existing ? 1 : (m - 1) / m;
  if (!device.efficiency || share == 0 || !is_backward(op.phase)) return {};
  if (times_hold(problem.graph.source, device)) return {};
  double bytes = 0;
  for (const TensorId output : op.outputs) {
    const Tensor& gradient = problem.graph[output];
    if (gradient.kind != TensorKind::parameter_gradient) continue;
    const bool is_fused = gradient.gradient_of && gradient.bytes > problem.graph[*gradient.gradient_of].bytes;
    if (!is_fused) bytes += 3 * static_cast<double>(gradient.bytes.count);
  }
  return bytes > 0 ? share * device.efficiency->moving(bytes, device) : Seconds{0};
}

}  // namespace

Seconds duration_on(const Problem& problem, OpId op, DeviceId device, Saving saving, std::uint32_t implementation) {
  const Op& timed = problem.graph[op];
  const std::optional<Seconds> known = duration(problem.graph, timed, problem.platform[device], saving, implementation);
  EXPECTS(known);
  return *known + accumulation(problem, timed, problem.platform[device]);
}

Seconds duration_again_on(const Problem& problem, OpId op, DeviceId device, Saving saving,
                          std::uint32_t implementation) {
  const Seconds load =
      implementation > 0 ? Seconds{0} : load_on(problem.graph, problem.graph[op], problem.platform[device], saving);
  return duration_on(problem, op, device, saving, implementation) - load;
}

std::optional<Seconds> seconds_on_host(const Problem& problem, OpId id, MemoryId host) {
  const Memory& memory = problem.platform[host];
  const Op& update = problem.graph[id];
  if (is_pinned_to_host(update)) return update.duration;
  if (update.phase != Phase::update) {
    Device processor;
    processor.peak = memory.peak;
    processor.memory_bandwidth = memory.bandwidth;
    return duration({std::nullopt, update.flops, update.bytes_moved}, problem.graph.source, processor);
  }
  const std::optional<BytesPerSecond> traffic = update_traffic(memory);
  if (!traffic) return std::nullopt;
  Bytes moved;
  for (const auto* list : {&update.inputs, &update.mutates}) {
    for (const TensorId t : *list) moved += problem.graph[t].bytes;
  }
  return Seconds{static_cast<double>(update.bytes_moved.value_or(moved).count) / traffic->value};
}

}  // namespace plimsoll
