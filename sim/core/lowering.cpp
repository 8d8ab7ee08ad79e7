#include "sim/core/lowering.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/gradient_owners.h"
#include "sim/core/live_copies.h"

namespace plimsoll {
namespace {

class Lowering {
 public:
  Lowering(const Problem& problem, const Partition& partition, std::span<const Tape> tapes)
      : problem_(problem),
        graph_(problem.graph),
        partition_(partition),
        tapes_(tapes),
        copies_(problem, tapes),
        owners_(problem, partition, copies_) {
    for (const Tape& tape : tapes) pieces_.push_back(cut(tape));
  }

  std::variant<Schedule, std::string> run() {
    try {
      make_resident();
      if (!issue_turns()) return "the devices' orders wait for each other in a circle";
      issue_ends();
    } catch (const CannotLower& cannot) {
      return cannot.why;
    }
    Schedule schedule = copies_.finish();
    schedule.trace = graph_.name;
    schedule.platform = problem_.platform.name;
    schedule.micro_batches = problem_.micro_batches;
    schedule.replicas = replicas();
    schedule.budget = problem_.budget;
    schedule.optimizer = problem_.optimizer;
    schedule.states = problem_.states.value_or(States::by_dtype);
    schedule.gradients = problem_.gradients;
    return schedule;
  }

 private:
  const Part& part(PartId id) const { return partition_.parts[id.index]; }

  std::uint32_t replicas() const {
    std::uint32_t last = 0;
    for (const Part& part : partition_.parts) last = std::max(last, part.replica);
    return last + 1;
  }

  // --- what is there from the start: parameters and states where they are used, gradients if they exist before

  void make_resident() {
    std::vector<bool> has_first(replicas(), false);
    for (const Part& part : partition_.parts) {
      if (!has_first[part.replica]) {
        for (const TensorId t : unread_parameters(graph_)) copies_.make_resident(t, part);
        has_first[part.replica] = true;
      }
      for (const OpId op : part.ops) {
        for (const TensorId t : graph_[op].inputs) {
          if (graph_[t].kind == TensorKind::parameter) copies_.make_resident(t, part);
        }
        for (const TensorId t : graph_[op].outputs) {
          if (graph_[t].kind != TensorKind::parameter_gradient) continue;
          if (problem_.gradients == Gradients::existing) copies_.make_resident(t, part);
          owners_.add_maker(t, part);
        }
      }
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      for (const Part* owner : owners_.of(op)) {
        for (const TensorId t : op.inputs) {
          const TensorKind kind = graph_[t].kind;
          if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state) copies_.make_resident(t, *owner);
        }
      }
    }
  }

  // --- turns

  struct Place {
    std::size_t turn = 0, action = 0;  ///< the next action, counted from the start of the turn's piece
  };

  bool issue_turns() {
    std::vector<Place> places(partition_.order.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < places.size(); ++d) moved |= issue_until_blocked(d, places[d]);
    }
    for (std::size_t d = 0; d < places.size(); ++d) {
      if (places[d].turn < partition_.order[d].size()) return false;
    }
    return true;
  }

  bool issue_until_blocked(std::size_t device, Place& place) {
    const std::vector<Turn>& order = partition_.order[device];
    bool moved = false;
    while (place.turn < order.size()) {
      const Turn& turn = order[place.turn];
      const Piece piece = pieces_[turn.part.index][turn.piece];
      for (; piece.first + place.action < piece.last; ++place.action) {
        const Action& action = tapes_[turn.part.index].actions[piece.first + place.action];
        if (action.kind == ActionKind::receive && !arrived(action, turn)) return moved;
        issue(action, turn);
        moved = true;
      }
      ++place.turn;
      place.action = 0;
    }
    return moved;
  }

  bool arrived(const Action& receive, const Turn& turn) const {
    const Part& here = part(turn.part);
    return copies_.contains(
        copies_.key(receive.tensor, turn.micro_batch, here.replica, copies_.memory_of(here.device)));
  }

  void issue(const Action& action, const Turn& turn) {
    if (action.last_only && turn.micro_batch + 1 < problem_.micro_batches) return;
    const Part& here = part(turn.part);
    const MemoryId memory = copies_.memory_of(here.device);
    CopyKey k = action.kind == ActionKind::compute ? CopyKey{}
                                                   : copies_.key(action.tensor, turn.micro_batch, here.replica, memory);
    switch (action.kind) {
      case ActionKind::compute:
        return compute(action, here, turn.micro_batch, tapes_[turn.part.index].backprop);
      case ActionKind::update_on_host:
        return update_on_host(action.op, here);
      case ActionKind::send:
        return send(action, k, here);
      case ActionKind::receive:
      case ActionKind::await_output_gradient:
        return;
      case ActionKind::drop:
      case ActionKind::offload:
      case ActionKind::prefetch:
      case ActionKind::wait:
      case ActionKind::drop_on_host:
      case ActionKind::read_disk:
      case ActionKind::write_disk:
        break;
    }
    const bool whole = action.chunk.count == 1;
    const std::uint32_t first = whole ? 0 : action.chunk.index;
    const std::uint32_t end = whole ? copies_.chunks_of(action.tensor) : first + 1;
    for (k.chunk = first; k.chunk < end; ++k.chunk) issue_on_chunk(action, k, here.device);
  }

  void issue_on_chunk(const Action& action, const CopyKey& k, DeviceId device) {
    switch (action.kind) {
      case ActionKind::drop:
        return copies_.drop(k, device);
      case ActionKind::offload:
        return copies_.offload(action.tensor, k, device);
      case ActionKind::prefetch:
        return copies_.prefetch(action.tensor, k, device);
      case ActionKind::wait:
        return copies_.wait_for_copy(k, device);
      case ActionKind::drop_on_host:
        return copies_.drop(copies_.on_host(k, device), device);
      case ActionKind::read_disk:
        copies_.copy(action.tensor, copies_.on_disk(k, device), copies_.on_host(k, device), device,
                     StreamKind::disk_to_host, StepKind::prefetch);
        return;
      case ActionKind::write_disk:
        copies_.copy(action.tensor, copies_.on_host(k, device), copies_.on_disk(k, device), device,
                     StreamKind::host_to_disk, StepKind::offload);
        return;
      case ActionKind::update_on_host:
      case ActionKind::compute:
      case ActionKind::send:
      case ActionKind::receive:
      case ActionKind::await_output_gradient:
        break;
    }
    EXPECTS(false);  // the others are not on a chunk
  }

  void send(const Action& action, const CopyKey& k, const Part& here) {
    const Part& there = part(action.peer);
    CopyKey to = k;
    to.memory = copies_.memory_of(there.device).index;
    if (to == k) {
      ++copies_[k].holders;
      return;
    }
    copies_.copy(action.tensor, k, to, here.device, StreamKind::peer, StepKind::send, there.device.index);
  }

  // --- compute

  StepKind kind_of(OpId op, std::uint32_t micro_batch, std::uint32_t replica) {
    const CopyKey run{op.index, micro_batch, replica, 0};
    if (!ran_.insert(run).second) return StepKind::recompute;
    switch (graph_[op].phase) {
      case Phase::forward:
        return StepKind::forward;
      case Phase::update:
        return StepKind::update;
      case Phase::backward:
      case Phase::backward_input:
      case Phase::backward_weight:
        break;
    }
    return StepKind::backward;
  }

  void compute(const Action& action, const Part& here, std::uint32_t micro_batch, Backprop backprop) {
    const OpId id = action.op;
    const Saving saving = action.saving;
    const Op& op = graph_[id];
    const MemoryId memory = copies_.memory_of(here.device);
    NewStep step;
    step.kind = kind_of(id, micro_batch, here.replica);
    step.stream = copies_.stream(here.device, StreamKind::compute);
    step.op = id;
    step.implementation = action.implementation;
    step.micro_batch = micro_batch;
    step.replica = here.replica;
    step.work.seconds = duration_on(problem_, id, here.device, saving, action.implementation);
    step.waits = copies_.take_waits(here.device);
    step.reads.reserve(op.inputs.size());
    step.allocates.reserve(op.outputs.size());
    step.waits.reserve(step.waits.size() + op.inputs.size() + op.outputs.size());

    std::vector<Copy*> used;
    used.reserve(op.inputs.size() + op.outputs.size());
    for (const TensorId t : op.inputs) {
      CopyKey k = copies_.key(t, micro_batch, here.replica, memory);
      const bool changes = std::ranges::find(op.mutates, t) != op.mutates.end();
      for (; k.chunk < copies_.chunks_of(t); ++k.chunk) used.push_back(&copies_.read(t, k, changes, step));
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      const bool gradient = graph_[t].kind == TensorKind::parameter_gradient;
      makes_gradient |= gradient;
      for (CopyKey k = copies_.key(t, micro_batch, here.replica, memory); k.chunk < copies_.chunks_of(t); ++k.chunk) {
        Copy* found = copies_.find(k);
        if (found == nullptr) {
          new_gradient |= gradient;
          used.push_back(&copies_.made_by(step, t, k));
        } else if (gradient) {
          step.writes.push_back(found->buffer);
          used.push_back(found);
          if (!found->users.empty()) step.waits.push_back(found->users.back());
        }
      }
    }
    const bool existed = backprop == Backprop::by_stage
                             ? !new_gradient
                             : micro_batch > 0 || problem_.gradients == Gradients::existing;  // before the call
    step.workspace = workspace(op, saving, makes_gradient && existed, action.implementation, backprop);
    for (const Copy* copy : used) {
      if (copy->maker) step.waits.push_back(*copy->maker);
    }
    const StepId issued = copies_.add_compute(std::move(step), here.device);
    for (Copy* copy : used) {
      if (!copy->maker) copy->maker = issued;
      copy->users.push_back(issued);
    }
  }

  void update_on_host(OpId id, const Part& here) {
    const Op& op = graph_[id];
    NewStep step;
    step.kind = kind_of(id, 0, here.replica);
    step.stream = copies_.stream(here.device, StreamKind::host);
    step.op = id;
    step.replica = here.replica;
    std::vector<Copy*> read, changed;
    for (const TensorId t : op.inputs) {
      const CopyKey k = copies_.on_host(copies_.key(t, 0, here.replica, copies_.memory_of(here.device)), here.device);
      const std::optional<Seconds> seconds = update_seconds_on_host(problem_, id, MemoryId{k.memory});
      EXPECTS(seconds);
      step.work.seconds = *seconds;
      Copy& copy = copies_[k];
      const bool changes = std::ranges::find(op.mutates, t) != op.mutates.end();
      (changes ? step.writes : step.reads).push_back(copy.buffer);
      (changes ? changed : read).push_back(&copy);
      if (copy.maker) step.waits.push_back(*copy.maker);
      if (changes) step.waits.insert(step.waits.end(), copy.users.begin(), copy.users.end());
    }
    if (const std::optional<StepId> last = copies_.last_compute(here.device)) step.waits.push_back(*last);
    const StepId issued = copies_.add(step, StreamKind::host);
    for (Copy* copy : read) copy->users.push_back(issued);
    for (Copy* copy : changed) copy->overwritten(issued);
  }

  // --- after all micro-batches

  void issue_ends() {
    owners_.sum();
    for (std::uint32_t p = 0; p < tapes_.size(); ++p) {
      for (const Action& action : tapes_[p].end) issue(action, {PartId{p}, 0, 0});
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase != Phase::update) continue;
      for (const Part* owner : owners_.of(graph_.ops[o])) {
        const auto p = static_cast<std::size_t>(owner - partition_.parts.data());
        if (!tapes_[p].end.empty()) continue;
        compute(plimsoll::compute(id_at<OpId>(o)), *owner, 0, tapes_[p].backprop);
        owners_.hand_out(graph_.ops[o], *owner);
      }
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  std::span<const Tape> tapes_;
  std::vector<std::vector<Piece>> pieces_;  // by part
  LiveCopies copies_;
  GradientOwners owners_;
  std::unordered_set<CopyKey, CopyKeyHash> ran_;  // (op, micro-batch, replica) run before
};

}  // namespace

std::variant<Schedule, std::string> lower(const Problem& problem, const Partition& partition,
                                          std::span<const Tape> tapes) {
  EXPECTS(partition.parts.size() == tapes.size());
  EXPECTS(partition.order.size() <= problem.platform.devices.size());
  return Lowering(problem, partition, tapes).run();
}

}  // namespace plimsoll
