#include "sim/model/chain_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "sim/model/shared_parameters.h"

namespace plimsoll {
namespace {

/// A parameter gradient, the parameters it belongs to, and the optimizer states beside them.
struct Trained {
  std::vector<TensorId> parameters;
  TensorId gradient;
  std::vector<TensorId> states;
};

/// Gradients of boundary tensors that a backward reads last, makes, and overwrites with their sum and another part.
struct BackwardGradients {
  std::vector<TensorId> read, made, changed;
};

class GraphBuilder {
 public:
  GraphBuilder(const Chain& chain, const Optimizers& optimizers, States states, Backward backward, Inner inner)
      : chain_(chain),
        optimizers_(optimizers),
        states_(states),
        backward_(backward),
        is_apart_(inner == Inner::apart && lists_saved(chain)),
        released_(released_workspaces(chain)) {
    made_.graph.name = chain.name;
    made_.graph.source = chain.source;
    add_boundaries();
    add_parameters();
    add_gradients();
  }

  ChainGraph build() && {
    const std::size_t n = chain_.stages.size();
    for (std::size_t i = 0; i < n; ++i) add_forward(i);
    made_.backward.resize(n);
    if (is_split()) made_.weight.resize(n);
    for (std::size_t i = n; i-- > 0;) {
      if (is_split()) {
        add_split_backward(i);
      } else {
        add_backward(i);
      }
    }
    if (optimizers_.rest != Optimizer::none) {
      for (const Trained& trained : trained_) add_update(trained);
    }
    return std::move(made_);
  }

 private:
  bool is_split() const { return backward_ == Backward::split; }

  TensorId tensor(std::string name, TensorKind kind, Bytes bytes) {
    Graph& graph = made_.graph;
    graph.tensors.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = bytes,
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  }

  void describe(TensorId t, const std::vector<std::int64_t>& shape, const std::string& dtype) {
    made_.graph.tensors[t.index].shape = shape;
    made_.graph.tensors[t.index].dtype = dtype;
  }

  OpId op(Op op) {
    made_.graph.ops.push_back(std::move(op));
    return id_at<OpId>(made_.graph.ops.size() - 1);
  }

  void add_boundaries() {
    const std::size_t n = chain_.stages.size();
    x_.resize(n + 1);
    if (chain_.boundaries.empty()) {
      for (std::size_t i = 0; i <= n; ++i) {
        const TensorKind kind = i == 0 ? TensorKind::input : TensorKind::activation;
        x_[i].push_back(tensor("x" + std::to_string(i), kind, boundary_bytes(chain_, i)));
      }
      return;
    }
    tensors_.resize(chain_.tensors.size());
    for (std::size_t i = 0; i <= n; ++i) {
      for (const std::uint32_t t : chain_.boundaries[i]) {
        const TensorKind kind = i == 0 ? TensorKind::input : TensorKind::activation;
        if (!tensors_[t]) {
          tensors_[t] = tensor(chain_.tensors[t].name, kind, chain_.tensors[t].bytes);
          if (is_apart_) describe(*tensors_[t], chain_.tensors[t].shape, chain_.tensors[t].dtype);
        }
        x_[i].push_back(*tensors_[t]);
      }
    }
  }

  /// The gradients that each backward reads, makes and adds to. Where it is known which tensors those are of, the
  /// gradient of a tensor is there once, from the last stage that reads the tensor to the one that makes it, and stages
  /// between add to it in place; else a boundary has one gradient.
  void add_gradients() {
    const std::size_t n = chain_.stages.size();
    gradients_.resize(n);
    if (!knows_tensors(chain_)) {
      for (std::size_t i = 0; i + 1 < n; ++i) {
        const std::string name = "gradient of x" + std::to_string(i + 1);
        gradients_[i + 1].made = {tensor(name, TensorKind::gradient, chain_.stages[i + 1].input_gradient)};
        gradients_[i].read = gradients_[i + 1].made;
      }
      gradients_[0].made = {tensor("gradient of x0", TensorKind::gradient, chain_.stages[0].input_gradient)};
      return;
    }
    std::vector<std::optional<TensorId>> now(chain_.tensors.size());  // by tensor of the chain
    for (std::size_t i = n; i-- > 0;) {
      const std::vector<std::uint32_t>& input = chain_.boundaries[i];
      for (const std::uint32_t t : chain_.boundaries[i + 1]) {
        if (now[t] && std::ranges::find(input, t) == input.end()) gradients_[i].read.push_back(*now[t]);
      }
      for (const std::uint32_t t : chain_.stages[i].tensors->gradients) {
        if (now[t]) gradients_[i].changed.push_back(*now[t]);
        now[t] = gradient_of(t, now[t]);
        gradients_[i].made.push_back(*now[t]);
      }
    }
  }

  /// The next value of a tensor's gradient, in the storage of the one before.
  TensorId gradient_of(std::uint32_t t, std::optional<TensorId> before) {
    const BoundaryTensor& of = chain_.tensors[t];
    Graph& graph = made_.graph;
    const TensorId made = tensor("gradient of " + of.name, TensorKind::gradient, of.gradient.value_or(of.bytes));
    if (before) {
      graph.tensors[made.index].name += " and more";
      graph.tensors[made.index].storage = graph[*before].storage;
      --graph.storages;
    }
    return made;
  }

  void add_parameters() {
    for (const Parameter& parameter : chain_.parameters) {
      parameters_.push_back(tensor(parameter.name, TensorKind::parameter, parameter.bytes));
      made_.graph.tensors.back().dtype = parameter.dtype;
    }
    std::map<std::uint32_t, TensorId> gradient_of;
    std::set<std::uint32_t> is_updated;  // of stages that share one the first updates it, whose backward is the last
    for (const Stage& stage : chain_.stages) {
      std::vector<TensorId>& gradients = parameter_gradients_.emplace_back();
      if (own_gradient(chain_, stage)) {
        if (*stage.parameter_gradient == Bytes{0}) continue;  // frozen
        std::vector<TensorId> own_parameters;
        for (const std::uint32_t p : stage.parameters) {
          if (chain_.parameters[p].trained && is_updated.insert(p).second) own_parameters.push_back(parameters_[p]);
        }
        const TensorId gradient =
            tensor("gradient of " + stage.name, TensorKind::parameter_gradient, *stage.parameter_gradient);
        gradients.push_back(gradient);
        if (!own_parameters.empty()) add_trained(std::move(own_parameters), gradient);
        continue;
      }
      for (const std::uint32_t p : stage.parameters) {
        if (!chain_.parameters[p].trained) continue;
        const auto [place, fresh] = gradient_of.try_emplace(p);
        if (fresh) {
          const Parameter& parameter = chain_.parameters[p];
          place->second = tensor("gradient of " + parameter.name, TensorKind::parameter_gradient, parameter.bytes);
          if (is_updated.insert(p).second) add_trained({parameters_[p]}, place->second);
        }
        if (std::ranges::find(gradients, place->second) == gradients.end()) gradients.push_back(place->second);
      }
    }
  }

  void add_trained(std::vector<TensorId> parameters, TensorId gradient) {
    Trained trained{std::move(parameters), gradient, {}};
    for (const TensorId parameter : trained.parameters) {
      const Tensor of = made_.graph[parameter];
      for (const Tensor& state : states_of(optimizers_.of(of.name), states_, of, dtype_of(made_.graph, of))) {
        trained.states.push_back(tensor(state.name, state.kind, state.bytes));
        made_.graph.tensors.back().dtype = state.dtype;
      }
    }
    trained_.push_back(std::move(trained));
  }

  /// Plain training is never slower than its stages, each alone: where it was measured to be, that is noise.
  double released_share() const { return is_split() || !chain_.plain ? 1 : std::min(1.0, chain_.plain->share()); }

  std::vector<TensorId> parameters_of(const Stage& stage) const {
    std::vector<TensorId> ids;
    for (const std::uint32_t p : stage.parameters) {
      if (std::ranges::find(ids, parameters_[p]) == ids.end()) ids.push_back(parameters_[p]);
    }
    return ids;
  }

  void add_forward(std::size_t i) {
    const Stage& stage = chain_.stages[i];
    std::vector<TensorId> outputs;
    for (const TensorId t : x_[i + 1]) {
      if (std::ranges::find(x_[i], t) != x_[i].end()) continue;  // passed through
      if (is_made_.insert(t).second) outputs.push_back(t);
    }
    std::vector<TensorId> saved;
    Bytes inner = stage.saved - stage.output;
    for (const InnerTensor& each : stage.inner) {
      if (!is_apart_) break;
      saved.push_back(tensor("saved by " + stage.name + ": " + each.name, TensorKind::activation, each.bytes));
      describe(saved.back(), each.shape, each.dtype);
      inner -= each.bytes;
    }
    EXPECTS(inner >= Bytes{0});
    const Bytes stays = stage.weight_saved ? *stage.weight_saved - stage.weight_made : inner;
    const Bytes for_weight = is_split() ? std::min(inner, stays) : inner;
    saved_for_weight_.push_back(tensor("saved by " + stage.name, TensorKind::activation, for_weight));
    saved.push_back(saved_for_weight_.back());
    if (for_weight < inner) {
      saved.push_back(
          tensor("saved by " + stage.name + " (input gradient)", TensorKind::activation, inner - for_weight));
    }
    saved_.push_back(saved);
    outputs.insert(outputs.end(), saved.begin(), saved.end());
    std::vector<TensorId> inputs = x_[i];
    const std::vector<TensorId> parameters = parameters_of(stage);
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    made_.forward.push_back(op({.name = stage.name,
                                .kind = std::string(name_of(OpKind::stage)),
                                .phase = Phase::forward,
                                .stage = static_cast<std::uint32_t>(i),
                                .duration = stage.forward,
                                .nograd_duration = stage.forward_nograd,
                                .flops = stage.forward_flops,
                                .bytes_moved = stage.forward_bytes_moved,
                                .workspace = stage.forward_workspace,
                                .nograd_workspace = stage.forward_nograd_workspace,
                                .accumulate_workspace = {},
                                .released_share = released_share(),
                                .inputs = inputs,
                                .outputs = outputs,
                                .saved = saved,
                                .mutates = {},
                                .recomputable = stage.recomputable,
                                .attributes = {},
                                .load = stage.load,
                                .kernels = stage.forward_kernels.value_or(0),
                                .made_of = stage.forward_made_of}));
  }

  /// What the backward of stage i reads beside parameters: output gradient, inner tensors, kept boundary tensors.
  std::vector<TensorId> backward_inputs(std::size_t i) const {
    const Stage& stage = chain_.stages[i];
    std::vector<TensorId> inputs;
    const auto add = [&inputs](const std::vector<TensorId>& tensors) {
      for (const TensorId t : tensors) {
        if (std::ranges::find(inputs, t) == inputs.end()) inputs.push_back(t);
      }
    };
    add(gradients_[i].read);
    add(gradients_[i].changed);
    add(saved_[i]);
    if (i == 0) add(x_[0]);
    if (!stage.tensors) {
      if (stage.keeps_input) add(x_[i]);
      if (stage.keeps_output) add(x_[i + 1]);
    } else {
      for (const std::uint32_t t : stage.tensors->kept) add({*tensors_[t]});
    }
    add(parameters_of(stage));
    return inputs;
  }

  /// Of what is apart: the listed tensors come first among those that the stage saves.
  std::vector<InputUse> uses_of(std::size_t i) const {
    std::vector<InputUse> uses;
    if (!is_apart_) return uses;
    const Stage& stage = chain_.stages[i];
    for (std::size_t k = 0; k < stage.inner.size(); ++k) {
      for (const LayerUse& use : stage.inner[k].uses) uses.push_back({saved_[i][k], use});
    }
    for (const BoundaryUse& boundary : stage.boundary_uses) {
      for (const LayerUse& use : boundary.uses) uses.push_back({*tensors_[boundary.tensor], use});
    }
    return uses;
  }

  Op backward_op(std::size_t i, Phase phase, Seconds duration) const {
    const Stage& stage = chain_.stages[i];
    return {.name = stage.name + (phase == Phase::backward_weight ? " weight gradient" : " backward"),
            .kind = std::string(name_of(OpKind::stage)),
            .phase = phase,
            .stage = static_cast<std::uint32_t>(i),
            .duration = duration,
            .nograd_duration = {},
            .flops = stage.backward_flops,
            .bytes_moved = stage.backward_bytes_moved,
            .workspace = stage.backward_workspace,
            .nograd_workspace = {},
            .accumulate_workspace = stage.backward_accumulate_workspace,
            .released_workspace = released_[i].fresh,
            .released_accumulate_workspace = released_[i].accumulating,
            .released_share = released_share(),
            .inputs = {},
            .outputs = {},
            .saved = {},
            .mutates = {},
            .recomputable = true,
            .attributes = {},
            .kernels = stage.backward_kernels.value_or(0),
            .made_of = stage.backward_made_of};
  }

  void add_backward(std::size_t i) {
    Op whole = backward_op(i, Phase::backward, chain_.stages[i].backward);
    whole.inputs = backward_inputs(i);
    whole.uses = uses_of(i);
    whole.outputs = gradients_[i].made;
    whole.mutates = gradients_[i].changed;
    whole.outputs.insert(whole.outputs.end(), parameter_gradients_[i].begin(), parameter_gradients_[i].end());
    made_.backward[i] = op(std::move(whole));
  }

  void add_split_backward(std::size_t i) {
    const Stage& stage = chain_.stages[i];
    EXPECTS(stage.has_backward_weight);
    const double weight_share = stage.backward.value > 0 ? stage.backward_weight / stage.backward : 0.0;
    const auto share = [](std::optional<Flops> flops, double part) {
      return flops ? std::optional(Flops{part * flops->count}) : std::nullopt;
    };
    const auto share_bytes = [](std::optional<Bytes> bytes, double part) {
      return bytes ? std::optional(Bytes{static_cast<std::int64_t>(part * static_cast<double>(bytes->count))})
                   : std::nullopt;
    };
    Op input = backward_op(i, Phase::backward_input, stage.backward - stage.backward_weight);
    input.flops = share(stage.backward_flops, 1 - weight_share);
    input.kernels = (1 - weight_share) * *input.kernels;
    input.made_of = part_of_backward(stage, false);
    input.bytes_moved = share_bytes(stage.backward_bytes_moved, 1 - weight_share);
    if (stage.backward_input_workspace) {
      input.workspace = *stage.backward_input_workspace;
      input.accumulate_workspace = stage.backward_input_workspace;
    }
    input.inputs = backward_inputs(i);
    input.outputs = gradients_[i].made;
    input.mutates = gradients_[i].changed;
    Op weight = backward_op(i, Phase::backward_weight, stage.backward_weight);
    weight.flops = share(stage.backward_flops, weight_share);
    weight.kernels = weight_share * *weight.kernels;
    weight.made_of = part_of_backward(stage, true);
    weight.bytes_moved = share_bytes(stage.backward_bytes_moved, weight_share);
    if (stage.backward_weight_workspace) {
      weight.workspace = *stage.backward_weight_workspace;
      weight.accumulate_workspace = stage.backward_weight_accumulate_workspace.value_or(weight.workspace);
    }
    if (stage.weight_keeps_gradient) weight.inputs = gradients_[i].read;
    weight.inputs.push_back(saved_for_weight_[i]);
    if (stage.weight_made > Bytes{0}) {
      input.outputs.push_back(
          tensor("made by " + stage.name + " for its weights", TensorKind::gradient, stage.weight_made));
      weight.inputs.push_back(input.outputs.back());
    }
    const auto add = [&weight](const std::vector<TensorId>& tensors) {
      for (const TensorId t : tensors) {
        if (std::ranges::find(weight.inputs, t) == weight.inputs.end()) weight.inputs.push_back(t);
      }
    };
    if (i == 0 || (stage.keeps_input && stage.weight_keeps_input)) add(x_[i]);
    if (stage.keeps_output && stage.weight_keeps_output) add(x_[i + 1]);
    weight.outputs = parameter_gradients_[i];
    made_.backward[i] = op(std::move(input));
    made_.weight[i] = op(std::move(weight));
  }

  void add_update(const Trained& trained) {
    const Graph& graph = made_.graph;
    const std::string of = graph[trained.gradient].name.substr(std::string("gradient of ").size());
    made_.updates.push_back(
        op(update_op(graph, states_, "update of " + of, trained.parameters, {trained.gradient}, trained.states)));
  }

  const Chain& chain_;
  const Optimizers& optimizers_;
  States states_;
  Backward backward_;
  bool is_apart_;                             // the tensors that stages list
  std::vector<ReleasedWorkspaces> released_;  // by stage
  ChainGraph made_;
  std::vector<std::vector<TensorId>> x_;          // boundary i
  std::set<TensorId> is_made_;                    // boundary tensors with a producer
  std::vector<std::vector<TensorId>> saved_;      // inner tensors, by stage
  std::vector<TensorId> saved_for_weight_;        // of these, what the weight gradient reads
  std::vector<std::optional<TensorId>> tensors_;  // of Chain::tensors
  std::vector<BackwardGradients> gradients_;      // by stage
  std::vector<TensorId> parameters_;
  std::vector<std::vector<TensorId>> parameter_gradients_;  // by stage
  std::vector<Trained> trained_;
};

}  // namespace

ChainGraph chain_graph(const Chain& chain, const Optimizers& optimizers, Backward backward, States states,
                       Inner inner) {
  EXPECTS(!chain.stages.empty() && chain.stages.back().output == Bytes{0});
  EXPECTS(backward == Backward::whole || inner == Inner::together || !lists_saved(chain));
  return GraphBuilder(chain, optimizers, states, backward, inner).build();
}

Chain with_loss(Chain chain) {
  EXPECTS(!chain.stages.empty());
  if (chain.stages.back().output == Bytes{0}) return chain;
  Stage loss;
  loss.name = "(output gradient)";
  loss.input_gradient = chain.stages.back().output;
  loss.has_backward_weight = true;
  loss.forward_flops = loss.backward_flops = Flops{0};
  loss.forward_bytes_moved = loss.backward_bytes_moved = Bytes{0};
  loss.forward_kernels = loss.backward_kernels = 0;
  if (knows_tensors(chain)) {
    loss.input_gradient = Bytes{0};
    loss.tensors.emplace();
    for (const std::uint32_t t : chain.boundaries.back()) {
      loss.input_gradient += chain.tensors[t].gradient.value_or(chain.tensors[t].bytes);
      loss.tensors->gradients.push_back(t);
    }
  }
  chain.stages.push_back(loss);
  if (!chain.boundaries.empty()) chain.boundaries.emplace_back();
  return chain;
}

}  // namespace plimsoll
