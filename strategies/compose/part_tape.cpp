#include <algorithm>
#include <array>
#include <set>

#include "sim/core/expects.h"
#include "strategies/compose/part_alone.h"
#include "strategies/models/chain_part.h"

namespace plimsoll {
namespace {

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
