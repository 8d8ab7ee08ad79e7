#include "validate/networks/step_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/model/stage_kernels.h"
#include "sim/ops/layers.h"
#include "validate/networks/network.h"
#include "validate/networks/packing.h"

namespace plimsoll {
namespace {

// The ops of one stage of a network, and which of their tensors leave the step that runs them.

struct StageOps {
  std::vector<OpId> forward, backward;
  std::vector<OpId> input_part, weight_part;  ///< of the backward: gradients of weights, and all else
  std::vector<TensorId> saved;                ///< made by forward, read by backward, not of boundaries nor attended
  std::vector<TensorId> saved_for_weights;    ///< of these, what the weight part reads
  std::vector<TensorId> saved_otherwise;      ///< and the others
  std::vector<TensorId> made_for_weights;     ///< made by the input part, read by the weight part, the same
};

bool is_boundary(const Network& network, TensorId t) {
  return std::ranges::find(network.boundaries, t) != network.boundaries.end();
}

bool is_attended(const Network& network, TensorId t) {
  return std::ranges::find(network.attended, t, &Attended::value) != network.attended.end();
}

std::set<TensorId> read_by(const Network& network, const std::vector<OpId>& ops) {
  std::set<TensorId> read;
  for (const OpId o : ops) read.insert(network.graph[o].inputs.begin(), network.graph[o].inputs.end());
  return read;
}

StageOps ops_of(const Network& network, std::size_t stage) {
  StageOps ops;
  for (std::size_t o = 0; o < network.graph.ops.size(); ++o) {
    const Op& op = network.graph.ops[o];
    if (op.stage != stage || op.phase == Phase::update) continue;
    const auto id = id_at<OpId>(o);
    (op.phase == Phase::forward ? ops.forward : ops.backward).push_back(id);
    if (op.phase == Phase::forward) continue;
    (op.phase == Phase::backward_weight ? ops.weight_part : ops.input_part).push_back(id);
  }
  const std::set<TensorId> read = read_by(network, ops.backward), for_weights = read_by(network, ops.weight_part);
  for (const OpId o : ops.forward) {
    for (const TensorId made : network.graph[o].outputs) {
      if (!read.contains(made) || is_boundary(network, made) || is_attended(network, made)) continue;
      ops.saved.push_back(made);
      (for_weights.contains(made) ? ops.saved_for_weights : ops.saved_otherwise).push_back(made);
    }
  }
  for (const OpId o : ops.input_part) {
    for (const TensorId made : network.graph[o].outputs) {
      if (for_weights.contains(made)) ops.made_for_weights.push_back(made);
    }
  }
  return ops;
}

/// The gradient of boundary i: what the backward of stage i makes and that of the stage before reads.
std::optional<TensorId> boundary_gradient(const Network& network, std::size_t i) {
  if (i == 0 || i >= network.boundaries.size()) return std::nullopt;
  std::set<TensorId> made;
  for (const OpId o : ops_of(network, i).backward) {
    made.insert(network.graph[o].outputs.begin(), network.graph[o].outputs.end());
  }
  for (const OpId o : ops_of(network, i - 1).backward) {
    for (const TensorId t : network.graph[o].inputs) {
      if (made.contains(t)) return t;
    }
  }
  return std::nullopt;
}

/// Whether one of the ops reads the tensor.
bool reads(const Network& network, const std::vector<OpId>& ops, TensorId t) {
  return std::ranges::any_of(
      ops, [&](OpId o) { return std::ranges::find(network.graph[o].inputs, t) != network.graph[o].inputs.end(); });
}

bool is_accumulated(Variant variant) {
  return variant == Variant::accumulate;
}

Bytes workspace_of(const Op& op, Variant variant) {
  return is_accumulated(variant) ? op.accumulate_workspace.value_or(op.workspace) : op.workspace;
}

/// Where the tensors that a stage shares with the scheduled graph lie; the others are its temporaries.
using Places = std::map<TensorId, Place>;

/// Lays out temporaries and kernels' workspaces of a row of ops.
StepProgram laid_out(const Network& network, const std::vector<OpId>& ops, const Places& outside, Variant variant) {
  std::vector<Temporary> blocks;
  std::map<TensorId, std::size_t> block_of;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = network.graph[ops[i]];
    for (const TensorId t : op.outputs) {
      if (outside.contains(t)) continue;
      block_of[t] = blocks.size();
      blocks.push_back({network.graph[t].bytes, i, i});
    }
    for (const TensorId t : op.inputs) {
      const auto found = block_of.find(t);
      if (found != block_of.end()) blocks[found->second].last = i;
    }
  }
  std::vector<std::size_t> scratch;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    scratch.push_back(blocks.size());
    blocks.push_back({workspace_of(network.graph[ops[i]], variant), i, i});
  }
  const Packing packing = pack(blocks);
  StepProgram program{{}, packing.size};
  const auto place = [&](TensorId t) {
    const auto found = outside.find(t);
    if (found != outside.end()) return found->second;
    const auto block = block_of.find(t);
    EXPECTS(block != block_of.end());
    return Place{std::nullopt, packing.offsets[block->second]};
  };
  for (std::size_t i = 0; i < ops.size(); ++i) {
    KernelCall call{ops[i], {}, {}, packing.offsets[scratch[i]]};
    for (const TensorId t : network.graph[ops[i]].inputs) call.inputs.push_back(place(t));
    for (const TensorId t : network.graph[ops[i]].outputs) call.outputs.push_back(place(t));
    program.calls.push_back(std::move(call));
  }
  return program;
}

/// Offsets of tensors in the one buffer that holds them.
std::vector<Bytes> offsets_of(const Network& network, const std::vector<TensorId>& tensors, Bytes& size) {
  std::vector<Bytes> offsets;
  for (const TensorId t : tensors) {
    offsets.push_back(aligned(size));
    size = offsets.back() + network.graph[t].bytes;
  }
  return offsets;
}

Bytes size_of(const Network& network, const std::vector<TensorId>& tensors) {
  Bytes size;
  offsets_of(network, tensors, size);
  return size;
}

/// What a stage is asked to do, and how.
struct StageStep {
  std::size_t stage = 0;
  Phase phase = Phase::forward;
  Variant variant = Variant::keep;
  Backward backward = Backward::whole;

  bool keeps() const { return variant != Variant::nothing; }
};

/// The ops of the stage that are candidates for the step.
const std::vector<OpId>& candidates(const StageOps& ops, Phase phase) {
  switch (phase) {
    case Phase::backward_input:
      return ops.input_part;
    case Phase::backward_weight:
      return ops.weight_part;
    default:
      return phase == Phase::forward ? ops.forward : ops.backward;
  }
}

/// What a step reads and makes, by name; null where only sizes are wanted: then it is everything.
using Named = const std::map<std::string, TensorId>*;

/// Where a step finds what is not its own. Names are those of chain_graph.
Places outside_of(const Network& network, const StageOps& ops, const StageStep& step, Named named) {
  Places places;
  const auto add = [&](TensorId t, const std::string& name, Bytes offset = {}, std::uint32_t before = 0) {
    if (named == nullptr) {
      places[t] = Place{TensorId{}, offset, before};
    } else if (const auto found = named->find(name); found != named->end()) {
      places[t] = Place{found->second, offset, before};
    }
  };
  const auto add_all = [&](const std::vector<TensorId>& tensors, const std::string& name) {
    Bytes size;
    const std::vector<Bytes> offsets = offsets_of(network, tensors, size);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string apart = name + ": " + network.graph[tensors[i]].name;
      if (named != nullptr && named->contains(apart)) {
        add(tensors[i], apart);
      } else {
        add(tensors[i], name, offsets[i]);
      }
    }
  };
  const auto x = [](std::size_t i) { return "x" + std::to_string(i); };
  const std::size_t stage = step.stage;
  const std::string &name = network.stage_names[stage], saved = "saved by " + name;
  add(network.boundaries[stage], x(stage));
  if (stage + 1 < network.boundaries.size()) add(network.boundaries[stage + 1], x(stage + 1));
  if (step.keeps() && step.backward == Backward::whole) add_all(ops.saved, saved);
  if (step.keeps() && step.backward == Backward::split) {
    add_all(ops.saved_for_weights, saved);
    add_all(ops.saved_otherwise, saved + " (input gradient)");
  }
  for (const Attended& each : network.attended) {
    if (each.stage != stage) continue;
    add(each.value, "attended in " + name, {}, each.before);
    add(each.room, "attended in " + name, network.graph[each.value].bytes, each.before);
  }
  for (const OpId o : candidates(ops, step.phase)) {
    for (const std::vector<TensorId>* list : {&network.graph[o].inputs, &network.graph[o].outputs}) {
      for (const TensorId t : *list) {
        const Tensor& tensor = network.graph[t];
        if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient) {
          add(t, tensor.name);
        }
      }
    }
  }
  if (step.phase == Phase::forward) return places;
  if (step.backward == Backward::split) add_all(ops.made_for_weights, "made by " + name + " for its weights");
  if (const auto in = boundary_gradient(network, stage)) add(*in, "gradient of " + x(stage));
  if (const auto out = boundary_gradient(network, stage + 1)) add(*out, "gradient of " + x(stage + 1));
  return places;
}

/// Those that lead to what is wanted outside: where not everything is trained, a part of a backward does.
std::vector<OpId> leading_outside(const Network& network, const std::vector<OpId>& ops, const Places& outside) {
  std::vector<OpId> leading;
  std::set<TensorId> read;
  for (std::size_t i = ops.size(); i-- > 0;) {
    const Op& op = network.graph[ops[i]];
    const auto wanted = [&](TensorId t) { return outside.contains(t) || read.contains(t); };
    if (std::ranges::none_of(op.outputs, wanted)) continue;
    leading.push_back(ops[i]);
    read.insert(op.inputs.begin(), op.inputs.end());
  }
  std::ranges::reverse(leading);
  return leading;
}

StepProgram stage_program(const Network& network, const StageOps& ops, const StageStep& step, Named named) {
  const Places outside = outside_of(network, ops, step, named);
  const std::vector<OpId>& all = candidates(ops, step.phase);
  // A forward that runs again while its output is there makes only what is not.
  const bool has_output = step.stage + 1 < network.boundaries.size();
  const bool makes_output = !has_output || outside.contains(network.boundaries[step.stage + 1]);
  if (step.phase == Phase::forward && makes_output) return laid_out(network, all, outside, step.variant);
  return laid_out(network, leading_outside(network, all, outside), outside, step.variant);
}

struct Costs {
  Seconds duration;
  Flops flops;
  Bytes moved;
};

Costs cost_of(const Network& network, const std::vector<OpId>& ops) {
  Costs sum;
  for (const OpId o : ops) {
    const Op& op = network.graph[o];
    sum.duration += op.duration.value_or(Seconds{0});
    sum.flops.count += op.flops.value_or(Flops{0}).count;
    sum.moved += op.bytes_moved.value_or(Bytes{0});
  }
  return sum;
}

/// What is alive at a stage's steps beside what they share with others.
void state_bytes(const Network& network, const StageOps& ops, std::size_t s, Stage& stage) {
  const auto workspace = [&](Phase phase, Variant variant, Backward backward = Backward::whole) {
    return stage_program(network, ops, {s, phase, variant, backward}, nullptr).workspace;
  };
  const bool is_loss = s + 1 == network.stage_names.size();
  stage.output = is_loss ? Bytes{0} : network.graph[network.boundaries[s + 1]].bytes;
  stage.saved = stage.output + size_of(network, ops.saved);
  stage.input_gradient = s == 0 ? Bytes{0} : network.graph[network.boundaries[s]].bytes;
  stage.forward_workspace = workspace(Phase::forward, Variant::keep);
  stage.forward_nograd_workspace = workspace(Phase::forward, Variant::nothing);
  stage.backward_workspace = workspace(Phase::backward, Variant::fresh_gradients);
  stage.backward_accumulate_workspace = workspace(Phase::backward, Variant::accumulate);
  stage.keeps_input = reads(network, ops.backward, network.boundaries[s]);
  stage.keeps_output = !is_loss && reads(network, ops.backward, network.boundaries[s + 1]);
  stage.weight_made = size_of(network, ops.made_for_weights);
  stage.weight_saved = size_of(network, ops.saved_for_weights) + stage.weight_made;
  const std::optional<TensorId> gradient = boundary_gradient(network, s + 1);
  stage.weight_keeps_input = reads(network, ops.weight_part, network.boundaries[s]);
  stage.weight_keeps_gradient = gradient && reads(network, ops.weight_part, *gradient);
  stage.backward_input_workspace = workspace(Phase::backward_input, Variant::fresh_gradients, Backward::split);
  stage.backward_weight_workspace = workspace(Phase::backward_weight, Variant::fresh_gradients, Backward::split);
  stage.backward_weight_accumulate_workspace = workspace(Phase::backward_weight, Variant::accumulate, Backward::split);
}

/// Of a tensor that these ops of a backward read.
std::vector<LayerUse> uses_by(const Network& network, const std::vector<OpId>& ops, TensorId t) {
  const Graph& graph = network.graph;
  const auto makes = [&](const Op& op) { return std::ranges::find(op.outputs, t) != op.outputs.end(); };
  const auto maker = std::ranges::find_if(graph.ops, makes);
  std::vector<LayerUse> uses;
  for (const OpId o : ops) {
    const Op& op = graph[o];
    if (std::ranges::find(op.inputs, t) == op.inputs.end()) continue;
    const SavedBy by = layer_of(op);
    const LayerUse use{.by = by,
                       .is_result = maker != graph.ops.end() && layer_of(*maker) == by,
                       .kernel = by == SavedBy::conv ? kernel_of(graph, op) : 0};
    if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
  }
  return uses;
}

void state_saved_tensors(const Network& network, const StageOps& ops, std::size_t s, Stage& stage) {
  for (const TensorId t : ops.saved) {
    const Tensor& tensor = network.graph[t];
    stage.inner.push_back({tensor.name, tensor.bytes, tensor.shape, tensor.dtype, uses_by(network, ops.backward, t)});
  }
  for (std::size_t j = s; j < std::min(s + 2, network.boundaries.size()); ++j) {
    std::vector<LayerUse> uses = uses_by(network, ops.backward, network.boundaries[j]);
    if (!uses.empty()) stage.boundary_uses.push_back({static_cast<std::uint32_t>(j), std::move(uses)});
  }
}

void state_times(const Network& network, const StageOps& ops, Stage& stage) {
  const Costs forward = cost_of(network, ops.forward), backward = cost_of(network, ops.backward);
  stage.forward = stage.forward_nograd = forward.duration;
  stage.backward = backward.duration;
  stage.backward_weight = std::min(stage.backward, cost_of(network, ops.weight_part).duration);
  stage.has_backward_weight = true;
  stage.forward_flops = forward.flops;
  stage.backward_flops = backward.flops;
  stage.forward_bytes_moved = forward.moved;
  stage.backward_bytes_moved = backward.moved;
}

}  // namespace

StepProgram op_program(const Network& network, OpId id, Variant variant) {
  const Op& op = network.graph[id];
  KernelCall call{id, {}, {}, {}};
  for (const TensorId t : op.inputs) call.inputs.push_back({t, {}});
  for (const TensorId t : op.outputs) call.outputs.push_back({t, {}});
  return {{std::move(call)}, workspace_of(op, variant)};
}

StepProgram stage_program(const Network& network, const Graph& scheduled, const Op& op, Variant variant,
                          Backward backward) {
  std::map<std::string, TensorId> named;
  for (const std::vector<TensorId>* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) named[scheduled[t].name] = t;
  }
  return stage_program(network, ops_of(network, op.stage), {op.stage, op.phase, variant, backward}, &named);
}

Chain chain_of(const Network& network) {
  Chain chain;
  chain.name = network.graph.name;
  chain.source = network.graph.source;
  chain.input = network.graph[network.boundaries[0]].bytes;
  std::map<TensorId, std::uint32_t> parameter_of;
  for (std::size_t t = 0; t < network.graph.tensors.size(); ++t) {
    const Tensor& tensor = network.graph.tensors[t];
    if (tensor.kind != TensorKind::parameter) continue;
    parameter_of[id_at<TensorId>(t)] = static_cast<std::uint32_t>(chain.parameters.size());
    const std::string& whole = chain.source.dtype;
    chain.parameters.push_back({tensor.name, tensor.bytes, tensor.dtype == whole ? std::string() : tensor.dtype});
  }
  for (std::size_t j = 0; j < network.boundaries.size(); ++j) {
    const Tensor& tensor = network.graph[network.boundaries[j]];
    chain.tensors.push_back({"x" + std::to_string(j), tensor.bytes, tensor.shape, tensor.dtype});
    chain.boundaries.push_back({static_cast<std::uint32_t>(j)});
  }
  if (network.boundaries.size() == network.stage_names.size()) chain.boundaries.emplace_back();  // behind the loss
  for (std::size_t s = 0; s < network.stage_names.size(); ++s) {
    const StageOps ops = ops_of(network, s);
    Stage stage;
    stage.name = network.stage_names[s];
    state_bytes(network, ops, s, stage);
    state_times(network, ops, stage);
    state_saved_tensors(network, ops, s, stage);
    std::set<std::uint32_t> used;
    for (const OpId o : ops.forward) {
      for (const TensorId t : network.graph[o].inputs) {
        if (network.graph[t].kind == TensorKind::parameter) used.insert(parameter_of.at(t));
      }
    }
    stage.parameters.assign(used.begin(), used.end());
    chain.stages.push_back(std::move(stage));
  }
  if (std::ranges::any_of(network.graph.ops, multiplies_8_bits)) {  // stages that compute in two types
    add_kernels(chain, network.graph, [](std::uint32_t stage) { return stage; });
  }
  return chain;
}

}  // namespace plimsoll
