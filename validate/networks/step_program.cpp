#include "validate/networks/step_program.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "sim/core/expects.h"
#include "validate/networks/packing.h"

namespace plimsoll {
namespace {

bool is_accumulated(Variant variant) {
  return variant == Variant::accumulate;
}

Bytes workspace_of(const Op& op, Variant variant) {
  return is_accumulated(variant) ? op.accumulate_workspace.value_or(op.workspace) : op.workspace;
}

/// The ops of one stage, and which of its tensors leave it.
struct StageOps {
  std::vector<OpId> forward, backward;
  std::vector<TensorId> saved;  ///< made by forward, read by backward, without the boundary tensors
};

StageOps ops_of(const Network& network, std::size_t stage) {
  StageOps ops;
  std::set<TensorId> read;
  for (std::size_t o = 0; o < network.graph.ops.size(); ++o) {
    const Op& op = network.graph.ops[o];
    if (op.stage != stage || op.phase == Phase::update) continue;
    (op.phase == Phase::forward ? ops.forward : ops.backward).push_back(id_at<OpId>(o));
    if (is_backward(op.phase)) read.insert(op.inputs.begin(), op.inputs.end());
  }
  for (const OpId o : ops.forward) {
    const TensorId made = network.graph[o].outputs[0];
    const bool leaves = std::ranges::find(network.boundaries, made) != network.boundaries.end();
    if (read.contains(made) && !leaves) ops.saved.push_back(made);
  }
  return ops;
}

/// The gradient of boundary i is what the last op of stage i's backward that hands it on has made.
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

/// Offsets of the saved tensors in the one buffer that holds them.
std::vector<Bytes> saved_offsets(const Network& network, const std::vector<TensorId>& saved, Bytes& size) {
  std::vector<Bytes> offsets;
  for (const TensorId t : saved) {
    offsets.push_back(aligned(size));
    size = offsets.back() + network.graph[t].bytes;
  }
  return offsets;
}

/// What a step reads and makes, by name; null where only sizes are wanted: then it is everything.
using Named = const std::map<std::string, TensorId>*;

/// Where a stage finds what is not its own.
Places outside_of(const Network& network, std::size_t stage, bool forward, bool keeps_saved, Named named) {
  Places places;
  const auto add = [&](TensorId t, const std::string& name, Bytes offset = {}) {
    if (named == nullptr) {
      places[t] = Place{TensorId{}, offset};
    } else if (const auto found = named->find(name); found != named->end()) {
      places[t] = Place{found->second, offset};
    }
  };
  const auto x = [](std::size_t i) { return "x" + std::to_string(i); };
  const StageOps ops = ops_of(network, stage);
  add(network.boundaries[stage], x(stage));
  if (stage + 1 < network.boundaries.size()) add(network.boundaries[stage + 1], x(stage + 1));
  if (keeps_saved) {
    Bytes size;
    const std::vector<Bytes> offsets = saved_offsets(network, ops.saved, size);
    for (std::size_t s = 0; s < offsets.size(); ++s) {
      add(ops.saved[s], "saved by " + network.stage_names[stage], offsets[s]);
    }
  }
  for (const OpId o : forward ? ops.forward : ops.backward) {
    for (const std::vector<TensorId>* list : {&network.graph[o].inputs, &network.graph[o].outputs}) {
      for (const TensorId t : *list) {
        const Tensor& tensor = network.graph[t];
        if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient) {
          add(t, tensor.name);
        }
      }
    }
  }
  if (forward) return places;
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

StepProgram stage_program(const Network& network, std::size_t stage, Variant variant, Named named) {
  const bool forward = variant == Variant::keep || variant == Variant::nothing;
  const StageOps ops = ops_of(network, stage);
  const Places outside = outside_of(network, stage, forward, variant != Variant::nothing, named);
  if (forward) return laid_out(network, ops.forward, outside, variant);
  return laid_out(network, leading_outside(network, ops.backward, outside), outside, variant);
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

bool reads(const Network& network, const std::vector<OpId>& ops, TensorId t) {
  return std::ranges::any_of(
      ops, [&](OpId o) { return std::ranges::find(network.graph[o].inputs, t) != network.graph[o].inputs.end(); });
}

}  // namespace

StepProgram op_program(const Network& network, OpId id, Variant variant) {
  const Op& op = network.graph[id];
  KernelCall call{id, {}, {}, {}};
  for (const TensorId t : op.inputs) call.inputs.push_back({t, {}});
  for (const TensorId t : op.outputs) call.outputs.push_back({t, {}});
  return {{std::move(call)}, workspace_of(op, variant)};
}

StepProgram stage_program(const Network& network, const ChainGraph& index, const Graph& scheduled, std::size_t stage,
                          Variant variant) {
  const bool forward = variant == Variant::keep || variant == Variant::nothing;
  const Op& op = scheduled[forward ? index.forward[stage] : index.backward[stage]];
  std::map<std::string, TensorId> named;
  for (const std::vector<TensorId>* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) named[scheduled[t].name] = t;
  }
  return stage_program(network, stage, variant, &named);
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
    chain.parameters.push_back({tensor.name, tensor.bytes});
  }
  for (std::size_t s = 0; s < network.stage_names.size(); ++s) {
    const StageOps ops = ops_of(network, s);
    const bool is_loss = s + 1 == network.stage_names.size();
    Stage stage;
    stage.name = network.stage_names[s];
    stage.output = is_loss ? Bytes{0} : network.graph[network.boundaries[s + 1]].bytes;
    Bytes inner;
    saved_offsets(network, ops.saved, inner);
    stage.saved = stage.output + inner;
    stage.input_gradient = s == 0 ? Bytes{0} : network.graph[network.boundaries[s]].bytes;
    stage.forward_workspace = stage_program(network, s, Variant::keep, nullptr).workspace;
    stage.forward_nograd_workspace = stage_program(network, s, Variant::nothing, nullptr).workspace;
    stage.backward_workspace = stage_program(network, s, Variant::fresh_gradients, nullptr).workspace;
    stage.backward_accumulate_workspace = stage_program(network, s, Variant::accumulate, nullptr).workspace;
    stage.keeps_input = reads(network, ops.backward, network.boundaries[s]);
    stage.keeps_output = !is_loss && reads(network, ops.backward, network.boundaries[s + 1]);
    const Costs forward = cost_of(network, ops.forward), backward = cost_of(network, ops.backward);
    stage.forward = stage.forward_nograd = forward.duration;
    stage.backward = backward.duration;
    stage.forward_flops = forward.flops;
    stage.backward_flops = backward.flops;
    stage.forward_bytes_moved = forward.moved;
    stage.backward_bytes_moved = backward.moved;
    std::set<std::uint32_t> used;
    for (const OpId o : ops.forward) {
      for (const TensorId t : network.graph[o].inputs) {
        if (network.graph[t].kind == TensorKind::parameter) used.insert(parameter_of.at(t));
      }
    }
    stage.parameters.assign(used.begin(), used.end());
    chain.stages.push_back(std::move(stage));
  }
  return chain;
}

}  // namespace plimsoll
