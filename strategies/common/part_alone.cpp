#include "strategies/common/part_alone.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/common/chain_part.h"

namespace plimsoll {
namespace {

constexpr std::string_view kind_of_transfer = "transfer";

/// By tensor: parameters that other parts use, and gradients that they make too.
std::vector<bool> used_elsewhere(const PartTask& task) {
  const Graph& graph = task.problem.graph;
  std::vector<bool> used(graph.tensors.size(), false);
  for (std::size_t p = 0; p < task.partition.parts.size(); ++p) {
    if (id_at<PartId>(p) == task.id) continue;
    for (const OpId op : task.partition.parts[p].ops) {
      for (const auto* list : {&graph[op].inputs, &graph[op].outputs}) {
        for (const TensorId t : *list) used[t.index] = used[t.index] || !per_micro_batch(graph[t].kind);
      }
    }
  }
  return used;
}

class AloneBuilder {
 public:
  AloneBuilder(const PartTask& task, const Others& others)
      : task_(task),
        whole_(task.problem),
        chain_(chain_part(whole_, task.part())),
        device_(task.part().device),
        others_(others) {
    EXPECTS(chain_.awaits);
    made_.here.assign(whole_.graph.ops.size(), no_op);
    made_.tensor_here.assign(whole_.graph.tensors.size(), no_tensor);
    storage_here_.assign(whole_.graph.storages, no_storage);
    Problem& problem = made_.problem;
    problem.platform = whole_.platform;
    for (Device& device : problem.platform.devices) device.takes_trace_times = true;  // those of its own
    problem.micro_batches = std::min(whole_.micro_batches, 2U);
    problem.optimizer = whole_.optimizer;
    problem.states = whole_.states;
    problem.gradients = whole_.gradients;
    problem.transformed = whole_.transformed;
    problem.graph.name = whole_.graph.name;
    problem.graph.source = whole_.graph.source;
  }

  PartAlone build() && {
    add_forwards();
    add_backwards();
    add_updates();
    add_chain();
    add_partition();
    return std::move(made_);
  }

 private:
  static constexpr StorageId no_storage{std::numeric_limits<std::uint32_t>::max()};

  Graph& graph() { return made_.problem.graph; }

  TensorId tensor(TensorId of) {
    TensorId& here = made_.tensor_here[of.index];
    if (here != no_tensor) return here;
    StorageId& storage = storage_here_[whole_.graph[of].storage.index];
    if (storage == no_storage) storage = id_at<StorageId>(graph().storages++);
    Tensor tensor = whole_.graph[of];
    tensor.storage = storage;
    if (tensor.gradient_of) tensor.gradient_of = this->tensor(*tensor.gradient_of);
    here = id_at<TensorId>(graph().tensors.size());
    graph().tensors.push_back(std::move(tensor));
    made_.tensor_of.push_back(of);
    return here;
  }

  std::vector<TensorId> tensors(const std::vector<TensorId>& of) {
    std::vector<TensorId> all;
    for (const TensorId t : of) all.push_back(tensor(t));
    return all;
  }

  /// Of no bytes: it says which op comes before which.
  TensorId order_token(std::string name) {
    graph().tensors.push_back({.name = std::move(name),
                               .kind = TensorKind::activation,
                               .bytes = {},
                               .storage = id_at<StorageId>(graph().storages++),
                               .shape = {},
                               .dtype = {}});
    made_.tensor_of.push_back(no_tensor);
    return id_at<TensorId>(graph().tensors.size() - 1);
  }

  OpId add(Op op, OpId of) {
    graph().ops.push_back(std::move(op));
    made_.op_of.push_back(of);
    return id_at<OpId>(graph().ops.size() - 1);
  }

  OpId add(OpId of) {
    Op op = whole_.graph[of];
    op.stage = static_cast<std::uint32_t>(op.stage - chain_.first + (chain_.first > 0 ? 1 : 0));
    op.inputs = tensors(op.inputs);
    op.outputs = tensors(op.outputs);
    op.saved = tensors(op.saved);
    op.mutates = tensors(op.mutates);
    for (InputUse& use : op.uses) use.tensor = tensor(use.tensor);
    op.duration = duration_on(whole_, of, device_, Saving::keep);
    if (op.nograd_duration) op.nograd_duration = duration_on(whole_, of, device_, Saving::nothing);
    for (std::uint32_t k = 0; k < op.alternatives.size(); ++k) {
      op.alternatives[k].duration = duration_on(whole_, of, device_, Saving::keep, k + 1);
    }
    made_.here[of.index] = add(std::move(op), of);
    return made_.here[of.index];
  }

  OpId add_transfer(std::string name, Phase phase, std::size_t stage, Seconds takes, std::vector<TensorId> inputs,
                    std::vector<TensorId> outputs) {
    Op op;
    op.name = std::move(name);
    op.kind = kind_of_transfer;
    op.phase = phase;
    op.stage = static_cast<std::uint32_t>(stage);
    op.duration = takes;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.recomputable = false;
    return add(std::move(op), no_op);
  }

  std::size_t stages() const { return chain_.last - chain_.first + (chain_.first > 0 ? 2 : 1); }

  void add_forwards() {
    ChainGraph& index = made_.problem.index.emplace();
    if (chain_.first > 0) {
      const PartId before = part_of_stage(whole_, task_.partition, chain_.first - 1);
      std::vector<TensorId> received = tensors(forward_across(whole_, chain_.first));
      if (task_.partition.parts[before.index].device == device_) {  // it stays there as long as either part reads it
        for (const TensorId t : received) graph().tensors[t.index].kind = TensorKind::input;
        received.clear();
      }
      received.push_back(order_token("(received)"));
      made_.receives = add_transfer("(receive)", Phase::forward, 0, {}, {}, received);
      index.forward.push_back(made_.receives);
    }
    for (std::size_t i = chain_.first; i < chain_.last; ++i) index.forward.push_back(add(whole_.index->forward[i]));
    std::vector<TensorId> sent;
    if (chain_.last < whole_.chain->stages.size()) sent = tensors(forward_across(whole_, chain_.last));
    const TensorId computed = order_token("(computed)");
    graph().ops[index.forward.back().index].outputs.push_back(computed);
    sent.push_back(computed);
    const TensorId waits = order_token("(sent)");
    made_.sends = add_transfer("(send)", Phase::forward, stages() - 1, {}, sent, {waits});
    index.forward.push_back(made_.sends);
    std::vector<TensorId> arrived;
    if (chain_.last < whole_.chain->stages.size()) arrived = tensors(backward_across(whole_, chain_.last));
    turned_ = order_token("(turned)");
    arrived.push_back(turned_);
    const bool is_split = !whole_.index->weight.empty();
    made_.others = add_transfer("(others)", Phase::forward, stages() - 1, between_turns(), {waits}, {});
    graph().ops[made_.others.index].workspace = others_.bytes;
    made_.awaits = add_transfer("(await output gradient)", is_split ? Phase::backward_input : Phase::backward,
                                stages() - 1, last_turn(), {waits}, std::move(arrived));
    if (others_.to_the_end) graph().ops[made_.awaits.index].workspace = others_.bytes;
  }

  /// The links carry what one micro-batch moves in the time of one forward and backward, while others compute.
  Seconds between_turns() const {
    Seconds sum;
    if (task_.in_flight < 2) return sum;
    for (const OpId op : task_.part().ops) {
      if (whole_.graph[op].phase != Phase::backward_weight || !task_.part().cut_before_weights) {
        sum += duration_on(whole_, op, device_, Saving::keep);
      }
    }
    return sum;
  }

  /// The last of them, a forward: what comes back may do so while it runs.
  Seconds last_turn() const {
    Seconds sum;
    for (const OpId op : task_.part().ops) {
      if (task_.in_flight > 1 && whole_.graph[op].phase == Phase::forward) {
        sum += duration_on(whole_, op, device_, Saving::keep);
      }
    }
    return sum;
  }

  void add_backwards() {
    ChainGraph& index = *made_.problem.index;
    index.backward.assign(stages(), no_op);
    index.backward.back() = made_.awaits;
    const bool is_split = !whole_.index->weight.empty();
    if (is_split) index.weight.assign(stages(), no_op);
    const std::size_t shift = chain_.first > 0 ? 1 : 0;
    std::vector<std::size_t> weights;
    const auto add_weight = [&](std::size_t i) {
      if (is_split && whole_.index->weight[i] != no_op) {
        index.weight[i - chain_.first + shift] = add(whole_.index->weight[i]);
      }
    };
    bool first = true;
    for (std::size_t i = chain_.last; i-- > chain_.first;) {
      const OpId of = whole_.index->backward[i];
      if (of != no_op) {
        const OpId added = add(of);
        index.backward[i - chain_.first + shift] = added;
        if (std::exchange(first, false)) graph().ops[added.index].inputs.push_back(turned_);
      }
      if (i == chain_.first && chain_.first > 0) add_return(is_split);
      if (task_.part().cut_before_weights) {
        weights.push_back(i);
      } else {
        add_weight(i);
      }
    }
    for (const std::size_t i : weights) add_weight(i);
  }

  void add_return(bool is_split) {
    made_.returns = add_transfer("(return input gradient)", is_split ? Phase::backward_input : Phase::backward, 0, {},
                                 tensors(backward_across(whole_, chain_.first)), {});
    made_.problem.index->backward.front() = made_.returns;
  }

  void add_updates() {
    const std::vector<bool> elsewhere = used_elsewhere(task_);
    for (std::size_t o = 0; o < whole_.graph.ops.size(); ++o) {
      const Op& op = whole_.graph.ops[o];
      if (op.phase != Phase::update) continue;
      const auto is_here = [&](TensorId t) {
        return whole_.graph[t].kind == TensorKind::parameter_gradient && made_.tensor_here[t.index] != no_tensor;
      };
      const auto is_shared = [&](TensorId t) { return elsewhere[t.index]; };
      if (std::ranges::none_of(op.inputs, is_here)) continue;
      if (std::ranges::none_of(op.inputs, is_shared)) made_.problem.index->updates.push_back(add(id_at<OpId>(o)));
    }
  }

  void add_chain() {
    Chain chain = chain_.chain;
    const auto& all = whole_.chain->stages;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(chain_.first);
    chain.stages.insert(chain.stages.begin(), begin, begin + static_cast<std::ptrdiff_t>(chain_.forward_only));
    for (Stage& stage : chain.stages) stage.tensors.reset();
    const Op& awaits = graph()[made_.awaits];
    chain.stages.back().backward = *awaits.duration;
    chain.stages.back().backward_workspace = chain.stages.back().backward_accumulate_workspace = awaits.workspace;
    if (chain_.first == 0) {
      chain.input = whole_.chain->input;
    } else {
      Stage received;
      received.name = "(receive)";
      received.output = received.saved = boundary_bytes(*whole_.chain, chain_.first);
      received.keeps_input = received.keeps_output = received.recomputable = false;
      chain.stages.insert(chain.stages.begin(), std::move(received));
      chain.input = {};
    }
    made_.problem.chain = std::move(chain);
  }

  void add_partition() {
    made_.partition = one_device(graph(), made_.problem.micro_batches, whole_.platform.devices.size());
    std::swap(made_.partition.order.front(), made_.partition.order[device_.index]);
    made_.partition.parts.front().device = device_;
  }

  const PartTask& task_;
  const Problem& whole_;
  ChainPart chain_;
  DeviceId device_;
  Others others_;
  PartAlone made_;
  std::vector<StorageId> storage_here_;  // by storage of the whole
  TensorId turned_;
};

}  // namespace

bool is_part_alone(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) { return op.kind == kind_of_transfer; });
}

PartAlone part_alone(const PartTask& task, const Others& others) {
  return AloneBuilder(task, others).build();
}

std::optional<std::string> moves_shared(const PartTask& task, const Tape& tape) {
  const Graph& graph = task.problem.graph;
  const std::vector<bool> elsewhere = used_elsewhere(task);
  const auto refused = [&](TensorId t) -> std::optional<std::string> {
    if (!elsewhere[t.index]) return std::nullopt;
    return "'" + graph[t].name + "' is used by several parts, which sum its gradient on their devices: it stays there";
  };
  for (const Home& home : tape.homes) {
    if (std::optional<std::string> why = refused(home.tensor)) return why;
  }
  for (const std::vector<Action>* actions : {&tape.actions, &tape.end}) {
    for (const Action& action : *actions) {
      if (action.kind != ActionKind::copy && action.kind != ActionKind::move) continue;
      if (std::optional<std::string> why = refused(action.tensor)) return why;
    }
  }
  return std::nullopt;
}

}  // namespace plimsoll
