#include "strategies/models/part_alone.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/part_copy.h"

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

bool runs(const Action& action, OpId op) {
  return action.kind == ActionKind::run && op != no_op && action.op == op;
}

class PipelineTape {
 public:
  PipelineTape(const PartTask& task, const PartAlone& alone, const Tape& tape)
      : task_(task), whole_(task.problem), alone_(alone), tape_(tape), part_(chain_part(whole_, task.part())) {
    made_.codecs = tape.codecs;
    for (const Home& home : tape.homes) {
      if (!home.has(place::device)) streamed_.insert(whole_tensor(home.tensor));
      made_.homes.push_back({whole_tensor(home.tensor), home.memories});
    }
  }

  PartTape build() && {
    const std::vector<Action>& actions = tape_.actions;
    const auto at = [&](OpId op) {
      return static_cast<std::size_t>(std::ranges::find_if(actions, [&](const Action& a) { return runs(a, op); }) -
                                      actions.begin());
    };
    const std::size_t sends = at(alone_.sends), awaits = at(alone_.awaits);
    EXPECTS(sends < awaits && awaits < actions.size());
    for (std::size_t a = 0; a <= sends; ++a) add(actions[a]);
    turn(std::span(actions).subspan(sends + 1, awaits - sends - 1));
    const std::size_t weights = first_of_weights(awaits + 1);
    for (std::size_t a = awaits + 1; a < actions.size(); ++a) {
      if (a == weights) {
        leave_streamed();
        cut(PieceName::weights);
      }
      add(actions[a]);
    }
    if (task_.part().cut_before_weights && weights == actions.size()) cut(PieceName::weights);
    for (const Action& action : tape_.end) made_.end.push_back(renamed(action));
    return {std::move(made_), on_the_way_};
  }

 private:
  TensorId whole_tensor(TensorId here) const { return alone_.tensor_of[here.index]; }
  bool is_in_flight(TensorId t) const { return per_micro_batch(whole_.graph[t].kind); }

  Action renamed(Action action) const {
    if (action.kind == ActionKind::run) {
      action.op = alone_.op_of[action.op.index];
    } else {
      action.tensor = whole_tensor(action.tensor);
    }
    return action;
  }

  Bytes bytes_moved(const Action& action, TensorId t) const {
    const Tensor& tensor = whole_.graph[t];
    const ChunkRange range = range_of(tensor.bytes, action.chunk);
    if (action.form.kind != Form::Kind::packed) return range.length;
    const Bytes packed = packed_bytes(tape_.codecs[action.form.codec], whole_.graph, tensor);
    return packed_share(packed, tensor.bytes, range.offset, range.length);
  }

  void cut(PieceName next) {
    made_.actions.push_back(cut_before(next));
    for (const TensorId t : absent_) return_streamed(t);
    absent_.clear();
  }

  void add(const Action& action) {
    if (action.kind == ActionKind::run && alone_.op_of[action.op.index] == no_op) return transfer(action.op);
    if (action.kind != ActionKind::run && whole_tensor(action.tensor) == no_tensor) return;
    const Action mapped = renamed(action);
    made_.actions.push_back(mapped);
    if (mapped.kind == ActionKind::run || !streamed_.contains(mapped.tensor)) return;
    if ((mapped.kind == ActionKind::copy || mapped.kind == ActionKind::move) && mapped.to == place::device) {
      present_.insert(mapped.tensor);
    }
    if (mapped.kind == ActionKind::drop && mapped.at == place::device) present_.erase(mapped.tensor);
  }

  void transfer(OpId op) {
    const auto issue = [&](ActionKind kind, const std::vector<TensorId>& tensors, PartId peer) {
      for (const TensorId t : tensors) made_.actions.push_back(on_tensor(kind, t, peer));
    };
    const bool is_last = part_.last == whole_.chain->stages.size();
    if (op == alone_.receives) issue(ActionKind::receive, forward_across(whole_, part_.first), {});
    if (op == alone_.sends && !is_last) {
      issue(ActionKind::send, forward_across(whole_, part_.last), part_of_stage(whole_, task_.partition, part_.last));
    }
    if (op == alone_.awaits && !is_last) issue(ActionKind::receive, backward_across(whole_, part_.last), {});
    if (op == alone_.returns) {
      issue(ActionKind::send, backward_across(whole_, part_.first),
            part_of_stage(whole_, task_.partition, part_.first - 1));
    }
  }

  /// What is between the forward and the backward. What leaves does so in the forward's piece, and no turn but this
  /// micro-batch's next one waits until it has left. Of what comes back, values do in a piece of their own, which may
  /// be taken earlier than the backward, and parameters in the backward's.
  void turn(std::span<const Action> between) {
    std::vector<Action> left, arriving, later;
    std::set<TensorId> returned;
    bool has_run = false;
    for (const Action& action : between) {
      if (runs(action, alone_.others)) continue;
      const bool copies = action.kind == ActionKind::copy || action.kind == ActionKind::move;
      has_run |= action.kind == ActionKind::run;
      const TensorId t = action.kind == ActionKind::run ? no_tensor : whole_tensor(action.tensor);
      if (action.kind != ActionKind::run && t == no_tensor) continue;
      if (copies && Way{action.at, action.to}.is_inward()) returned.insert(t);
      if (action.kind == ActionKind::wait && action.at != place::device) {
        left.push_back(action);
        on_the_way_ += bytes_moved(action, t);
      } else if (has_run || (returned.contains(t) && !is_in_flight(t))) {
        later.push_back(action);
      } else if (returned.contains(t)) {
        arriving.push_back(action);
        if (copies) on_the_way_ += bytes_moved(action, t);
      } else {
        add(action);
      }
    }
    leave_streamed();
    const bool arrives = !arriving.empty();
    if (arrives) {
      made_.actions.push_back(cut_before(PieceName::arrive));
      for (const Action& action : left) add(action);
      for (const Action& action : arriving) add(action);
    }
    cut(PieceName::backward);
    for (const Action& action : left) {
      if (!arrives) add(action);
    }
    transfer(alone_.awaits);
    for (const Action& action : later) add(action);
  }

  /// Parameters are there for one piece at a time: other micro-batches may take their turns in between.
  void leave_streamed() {
    for (const TensorId t : present_) {
      made_.actions.push_back(on_tensor(ActionKind::drop, t));
      absent_.push_back(t);
    }
    present_.clear();
  }

  void return_streamed(TensorId t) {
    const auto home = std::ranges::find(made_.homes, t, &Home::tensor);
    const bool on_host = home->has(place::host);
    if (!on_host) made_.actions.push_back(along(way::disk_to_host, ActionKind::copy, t));
    made_.actions.push_back(along(way::host_to_device, on_host ? ActionKind::copy : ActionKind::move, t));
    present_.insert(t);
  }

  /// The first action that belongs to the weight gradients, if they are a piece of their own; else the end.
  std::size_t first_of_weights(std::size_t from) const {
    const std::vector<Action>& actions = tape_.actions;
    if (!task_.part().cut_before_weights) return actions.size();
    std::size_t after = from;
    for (std::size_t a = from; a < actions.size(); ++a) {
      const bool is_input =
          actions[a].kind == ActionKind::run && alone_.problem.graph[actions[a].op].phase == Phase::backward_input;
      if (is_input) after = a + 1;
    }
    const auto frees = [](const Action& a) { return a.kind == ActionKind::drop && a.at == place::device; };
    while (after < actions.size() && frees(actions[after])) ++after;
    return after;
  }

  const PartTask& task_;
  const Problem& whole_;
  const PartAlone& alone_;
  const Tape& tape_;
  ChainPart part_;
  Tape made_;
  std::set<TensorId> streamed_;   // parameters that are on the device for their uses only
  std::set<TensorId> present_;    // of these
  std::vector<TensorId> absent_;  // dropped at a cut, wanted after it
  Bytes on_the_way_;
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

PartTape tape_in_pipeline(const PartTask& task, const PartAlone& alone, const Tape& tape) {
  return PipelineTape(task, alone, tape).build();
}

Tape tape_alone(const PartAlone& alone, const Tape& tape) {
  Tape made;
  if (alone.receives != no_op) made.actions.push_back(run(alone.receives));
  bool turned = false, returned = false;
  const auto stands_for = [&](OpId op) { made.actions.push_back(run(op)); };
  for (const Action& action : tape.actions) {
    switch (action.kind) {
      case ActionKind::run: {
        Action here = action;
        here.op = alone.here[action.op.index];
        made.actions.push_back(here);
        break;
      }
      case ActionKind::cut:
        if (action.next != PieceName::backward) break;
        stands_for(alone.sends);
        stands_for(alone.others);
        stands_for(alone.awaits);
        turned = true;
        break;
      case ActionKind::send:
        if (turned && !returned) stands_for(alone.returns);
        returned |= turned;
        break;
      case ActionKind::receive:
      case ActionKind::drop:
        break;
      case ActionKind::copy:
      case ActionKind::move:
      case ActionKind::wait:
      case ActionKind::pack:
      case ActionKind::unpack:
        EXPECTS(false && "only tapes that recompute");
    }
  }
  return with_drops(alone.problem.graph, std::move(made));
}

}  // namespace plimsoll
