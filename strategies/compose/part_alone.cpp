#include "strategies/compose/part_alone.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/compose/part_copy.h"
#include "strategies/models/chain_part.h"

namespace plimsoll {
namespace {

class AloneBuilder {
 public:
  AloneBuilder(const PartTask& task, const Others& others)
      : task_(task),
        whole_(task.problem),
        chain_(chain_part(whole_, task.part())),
        device_(task.part().device),
        others_(others),
        copy_(task, made_) {
    EXPECTS(chain_.awaits);
  }

  PartAlone build() && {
    add_forwards();
    add_backwards();
    add_updates();
    add_chain();
    copy_.add_partition();
    return std::move(made_);
  }

 private:
  Graph& graph() { return made_.problem.graph; }
  TensorId tensor(TensorId of) { return copy_.tensor(of); }
  std::vector<TensorId> tensors(const std::vector<TensorId>& of) { return copy_.tensors(of); }
  TensorId order_token(std::string name) { return copy_.order_token(std::move(name)); }

  OpId add(OpId of) {
    Op op = copy_.copied(of);
    op.stage = static_cast<std::uint32_t>(op.stage - chain_.first + (chain_.first > 0 ? 1 : 0));
    return copy_.add(std::move(op), of);
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
    return copy_.add(std::move(op), no_op);
  }

  std::size_t stages() const { return chain_.last - chain_.first + (chain_.first > 0 ? 2 : 1); }

  void add_forwards() {
    ChainGraph& index = made_.problem.index.emplace();
    std::optional<TensorId> is_here;  // what the part before has left on the device
    if (chain_.first > 0) {
      const PartId before = part_of_stage(whole_, task_.partition, chain_.first - 1);
      std::vector<TensorId> received = tensors(forward_across(whole_, chain_.first));
      const TensorId arrival = order_token("(received)");
      if (task_.partition.parts[before.index].device == device_) {  // it stays there as long as either part reads it
        for (const TensorId t : received) graph().tensors[t.index].kind = TensorKind::input;
        received.clear();
        is_here = arrival;
      }
      received.push_back(arrival);
      made_.receives = add_transfer("(receive)", Phase::forward, 0, {}, {}, received);
      index.forward.push_back(made_.receives);
    }
    for (std::size_t i = chain_.first; i < chain_.last; ++i) index.forward.push_back(add(whole_.index->forward[i]));
    if (is_here) graph().ops[index.forward[1].index].inputs.push_back(*is_here);
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
    for (const OpId update : copy_.own_updates()) made_.problem.index->updates.push_back(add(update));
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

  const PartTask& task_;
  const Problem& whole_;
  ChainPart chain_;
  DeviceId device_;
  Others others_;
  PartAlone made_;
  PartCopy copy_;
  TensorId turned_;
};

}  // namespace

PartAlone part_alone(const PartTask& task, const Others& others) {
  return AloneBuilder(task, others).build();
}

std::optional<std::string> moves_shared(const PartTask& task, const Tape& tape) {
  const Graph& graph = task.problem.graph;
  const std::vector<bool> elsewhere = shared_with_other_parts(task);
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
