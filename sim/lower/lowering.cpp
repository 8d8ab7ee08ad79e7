#include "sim/lower/lowering.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/partition.h"
#include "sim/core/slices.h"
#include "sim/lower/clipping.h"
#include "sim/lower/gradient_owners.h"
#include "sim/lower/live_copies.h"
#include "sim/lower/weight_versions.h"
#include "sim/model/graph_updates.h"
#include "sim/model/problem.h"
#include "sim/model/schedule_head.h"

namespace plimsoll {
namespace {

// Devices that send and receive in an order that is given, one after the other, as a communicator's stream does: a
// receive that stands early holds up all behind it until its value has come. What is sent goes into a buffer: it does
// not wait for the receiver.

class ExchangeOrder {
 public:
  explicit ExchangeOrder(const Partition&);

  /// Whether all that stands before it in the sender's order has been sent or received. Always where the partition has
  /// no order, or does not name it.
  bool may_send(PartId from, PartId to, std::uint32_t micro_batch);
  /// A step sends such a value: the steps that it waits for.
  std::vector<StepId> send(PartId from, PartId to, std::uint32_t micro_batch, TensorId, StepId);

  /// The same of the receiver, of what has been sent.
  bool may_receive(PartId to, std::uint32_t micro_batch, TensorId);
  /// What the receiver's next compute waits for.
  std::vector<StepId> receive(PartId to, std::uint32_t micro_batch, TensorId);

 private:
  using Key = std::tuple<PartId, PartId, std::uint32_t>;
  struct Device {
    std::size_t at = 0;          ///< the next exchange
    std::vector<StepId> before;  ///< what the next one that is sent waits for
    std::vector<StepId> come;    ///< since the device's compute has waited last
  };

  static Key key(const PartExchange& exchange) { return {exchange.from, exchange.to, exchange.micro_batch}; }
  std::size_t device(PartId part) const { return partition_.parts[part.index].device.index; }
  bool is_past(std::size_t device, const Key&);

  const Partition& partition_;
  std::map<Key, std::pair<std::size_t, std::size_t>> places_;          // in the sender's order, in the receiver's
  std::map<Key, std::vector<StepId>> sent_;                            // so far
  std::map<std::tuple<PartId, std::uint32_t, TensorId>, Key> values_;  // by receiver: of which exchange
  std::vector<Device> devices_;
};

ExchangeOrder::ExchangeOrder(const Partition& partition) : partition_(partition), devices_(partition.exchanges.size()) {
  for (std::size_t d = 0; d < partition.exchanges.size(); ++d) {
    for (std::size_t k = 0; k < partition.exchanges[d].size(); ++k) {
      const PartExchange& each = partition.exchanges[d][k];
      auto& [sender, receiver] = places_[key(each)];
      (device(each.from) == d ? sender : receiver) = k;
    }
  }
}

/// Whether all up to the exchange, which is the device's own, has been sent or received; goes on as far as that is so.
bool ExchangeOrder::is_past(std::size_t d, const Key& until) {
  Device& here = devices_[d];
  const auto& [sender, receiver] = places_.at(until);
  const std::size_t place = device(std::get<0>(until)) == d ? sender : receiver;
  for (; here.at <= place; ++here.at) {
    const PartExchange& next = partition_.exchanges[d][here.at];
    const auto sent = sent_.find(key(next));
    if (sent == sent_.end()) return false;
    if (device(next.from) == d) {
      here.before = sent->second;
    } else {
      here.before.insert(here.before.end(), sent->second.begin(), sent->second.end());
      here.come.insert(here.come.end(), sent->second.begin(), sent->second.end());
    }
  }
  return true;
}

bool ExchangeOrder::may_send(PartId from, PartId to, std::uint32_t micro_batch) {
  const Key asked{from, to, micro_batch};
  const auto place = places_.find(asked);
  if (place == places_.end() || sent_.contains(asked)) return true;
  const std::size_t d = device(from), k = place->second.first;
  return k == 0 || is_past(d, key(partition_.exchanges[d][k - 1]));
}

std::vector<StepId> ExchangeOrder::send(PartId from, PartId to, std::uint32_t micro_batch, TensorId value,
                                        StepId step) {
  const Key asked{from, to, micro_batch};
  if (!places_.contains(asked)) return {};
  values_[{to, micro_batch, value}] = asked;
  sent_[asked].push_back(step);
  return devices_[device(from)].before;
}

bool ExchangeOrder::may_receive(PartId to, std::uint32_t micro_batch, TensorId value) {
  const auto of = values_.find({to, micro_batch, value});
  return of == values_.end() || is_past(device(to), of->second);
}

std::vector<StepId> ExchangeOrder::receive(PartId to, std::uint32_t micro_batch, TensorId value) {
  if (!values_.contains({to, micro_batch, value})) return {};
  return std::exchange(devices_[device(to)].come, {});
}

// What steps on a slice of a sequence read of the slices before it: of lowering.

class EarlierSlices {
 public:
  explicit EarlierSlices(const Graph&);

  /// Adds to the step what it reads of earlier slices, and what of its own slice is there from a run before. Throws
  /// CannotLower where a tape has dropped it.
  void read(LiveCopies&, OpId, std::uint32_t micro_batch, DeviceId, NewStep&,
            std::vector<std::pair<TensorId, Copy*>>& used) const;

 private:
  const Graph& graph_;
  std::uint32_t slices_;
  std::vector<std::optional<TensorId>> attended_;  ///< by op; empty where there are no slices
};

EarlierSlices::EarlierSlices(const Graph& graph) : graph_(graph), slices_(sequence_slices(graph)) {
  if (slices_ == 1) return;
  for (const Op& op : graph.ops) attended_.push_back(attended_by(graph, op));
}

void EarlierSlices::read(LiveCopies& copies, OpId id, std::uint32_t micro_batch, DeviceId device, NewStep& step,
                         std::vector<std::pair<TensorId, Copy*>>& used) const {
  if (attended_.empty() || !attended_[id.index]) return;
  const TensorId t = *attended_[id.index];
  const auto key = [&](std::uint32_t slice) { return copies.key_at(t, slice, device, place::device); };
  const auto& makes = graph_[id].outputs;
  const bool is_there = std::ranges::find(makes, t) != makes.end() && copies.contains(key(micro_batch));
  for (std::uint32_t slice = micro_batch - micro_batch % slices_; slice < micro_batch + (is_there ? 1 : 0); ++slice) {
    CopyKey k = key(slice);
    for (; k.chunk < copies.chunks_of(t); ++k.chunk) {
      if (!copies.contains(k)) {
        throw CannotLower{"'" + graph_[id].name + "' on one slice of a sequence reads '" + graph_[t].name +
                          "' of an earlier one, which is not on its device"};
      }
      used.emplace_back(t, &copies.read(t, k, false, step));
    }
  }
}

// Devices whose orders wait for each other, in words.

/// What a device waits for: the turn that it is at, and the part that has not sent yet what that reads.
struct Blocked {
  Turn turn;
  PartId by;
};

/// Names two parts that wait for each other, or for others that do; `blocked` is asked of devices.
std::string waiting_circle(const Problem& problem, const Partition& partition,
                           const std::function<std::optional<Blocked>(std::size_t)>& blocked) {
  std::string text = "the devices' orders wait for each other in a circle";
  const auto device = [&](PartId part) { return partition.parts[part.index].device; };
  std::vector<bool> seen(partition.order.size(), false);
  std::optional<Blocked> at;
  for (std::size_t d = 0; d < seen.size() && !at; ++d) at = blocked(d);
  while (at && !seen[device(at->turn.part).index]) {
    seen[device(at->turn.part).index] = true;
    at = blocked(device(at->by).index);
  }
  const std::string_view between[] = {": ", ", and "};
  for (int names = 0; at && names < 2; ++names, at = blocked(device(at->by).index)) {
    text += std::string(between[names]) + "part " + std::to_string(at->turn.part.index) + " on '" +
            problem.platform[device(at->turn.part)].name + "' waits for what part " + std::to_string(at->by.index) +
            " makes of micro-batch " + std::to_string(at->turn.micro_batch);
  }
  return text;
}

class Lowering {
 public:
  Lowering(const Problem& problem, const Partition& partition, std::span<const Tape> tapes)
      : problem_(problem),
        graph_(problem.graph),
        partition_(partition),
        tapes_(tapes),
        timed_(graph_.ops.size()),
        last_turns_(tapes.size()),
        first_backward_(tapes.size()),
        copies_(problem, tapes),
        owners_(problem, partition, copies_),
        versions_(problem, partition, copies_),
        earlier_(graph_),
        exchanges_(partition),
        ran_(graph_.ops.size() * problem.micro_batches, false) {
    for (const Tape& tape : tapes) pieces_.push_back(pieces_of(tape));
    note_turns();
    copies_.expect(steps_of_turns(partition, tapes));
  }

  std::variant<Schedule, std::string> run() {
    try {
      make_resident();
      versions_.find_updates(tapes_);
      if (!issue_turns()) return waiting_circle(problem_, partition_, [&](std::size_t d) { return blocked(d); });
      issue_ends();
    } catch (const CannotLower& cannot) {
      return cannot.why;
    }
    Schedule schedule = copies_.finish();
    state_problem(schedule, problem_);
    schedule.updates = partition_.updates;
    schedule.staleness = versions_.staleness();
    return schedule;
  }

 private:
  const Part& part(PartId id) const { return partition_.parts[id.index]; }

  // --- what is there from the start: parameters and states where they are used, gradients if they exist before

  void make_resident() {
    for (const TensorId t : unread_parameters(graph_)) copies_.make_resident(t, partition_.parts.front());
    for (std::size_t p = 0; p < partition_.parts.size(); ++p) {
      const Part& part = partition_.parts[p];
      for (const OpId op : part.ops) {
        for (const TensorId t : graph_[op].inputs) {
          if (graph_[t].kind == TensorKind::parameter) copies_.make_resident(t, part);
        }
        for (const TensorId t : graph_[op].outputs) {
          if (graph_[t].kind != TensorKind::parameter_gradient) continue;
          if (problem_.gradients == Gradients::existing) copies_.make_resident(t, part);
          owners_.add_maker(t, op, part, micro_batches_[p]);
        }
      }
    }
    owners_.begin();
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

  /// Which copy of a part takes which micro-batch, and the last turn at each piece.
  void note_turns() {
    for (std::size_t p = 0; p < tapes_.size(); ++p) {
      copies_of_.try_emplace(partition_.parts[p].ops.front(), 0).first->second++;
    }
    micro_batches_.resize(tapes_.size(), 0);
    for (const std::vector<Turn>& order : partition_.order) {
      for (const Turn& turn : order) {
        last_turns_[turn.part.index][turn.piece] = turn.micro_batch;
        if (turn.piece != number_of(PieceName::forward)) continue;
        ++micro_batches_[turn.part.index];
        const OpId first = part(turn.part).ops.front();
        if (copies_of_[first] > 1) EXPECTS(takers_.try_emplace({first, turn.micro_batch}, turn.part).second);
      }
    }
  }

  /// The copy of a part that takes the micro-batch.
  PartId taker(PartId any, std::uint32_t micro_batch) const {
    const auto found = takers_.find({part(any).ops.front(), micro_batch});
    return found == takers_.end() ? any : found->second;
  }

  struct Place {
    std::size_t turn = 0, action = 0;  ///< the next action, counted from the start of the turn's piece
  };

  bool issue_turns() {
    places_.resize(partition_.order.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < places_.size(); ++d) moved |= issue_until_blocked(d, places_[d]);
    }
    const auto is_done = [](const Place& at, const auto& order) { return at.turn == order.size(); };
    return std::ranges::equal(places_, partition_.order, is_done);
  }

  std::optional<Blocked> blocked(std::size_t device) const {
    const Place& place = places_[device];
    if (place.turn == partition_.order[device].size()) return std::nullopt;
    const Turn& turn = partition_.order[device][place.turn];
    const Piece piece = pieces_[turn.part.index][turn.piece];
    const TensorId awaited = tapes_[turn.part.index].actions[piece.first + place.action].tensor;
    for (std::size_t p = 0; p < partition_.parts.size(); ++p) {
      const auto sends = [&](const Action& action) {
        return action.kind == ActionKind::send && action.tensor == awaited &&
               taker(action.peer, turn.micro_batch) == turn.part;
      };
      const PartId sender = taker(id_at<PartId>(p), turn.micro_batch);
      if (std::ranges::any_of(tapes_[sender.index].actions, sends)) return Blocked{turn, sender};
    }
    return std::nullopt;
  }

  bool issue_until_blocked(std::size_t device, Place& place) {
    const std::vector<Turn>& order = partition_.order[device];
    bool moved = false;
    while (place.turn < order.size()) {
      const Turn& turn = order[place.turn];
      for (const Piece piece = pieces_[turn.part.index][turn.piece]; piece.first + place.action < piece.last;
           ++place.action) {
        const Action& action = tapes_[turn.part.index].actions[piece.first + place.action];
        if (action.kind == ActionKind::receive && !arrived(action, turn)) return moved;
        if (!may_exchange(action, turn)) return moved;
        issue(action, turn);
        moved = true;
      }
      if (versions_.come_within() && turn.piece == number_of(last_piece(tapes_[turn.part.index])))
        end_micro_batch(turn);
      ++place.turn;
      place.action = 0;
    }
    return moved;
  }

  /// Where updates come within the iteration, those that have their gradients now run.
  void end_micro_batch(const Turn& turn) {
    versions_.end(turn.part, turn.micro_batch);
    for (; versions_.is_due(turn.part); versions_.updated(turn.part)) {
      for (const OpId op : versions_.updates_of(turn.part)) {
        run(plimsoll::run(op), turn.part, versions_.newest(turn.part), Backprop::by_stage);
      }
    }
  }

  /// The first chunk stands for all, which are sent at once. What is there may be another part's still.
  bool arrived(const Action& receive, const Turn& turn) {
    const Copy* found = copies_.find(key_of(receive, turn));
    return found != nullptr && found->is_held_by(turn.part);
  }

  /// Whether it is the turn of what is sent or received, in the device's order.
  bool may_exchange(const Action& action, const Turn& turn) {
    if (action.kind == ActionKind::receive) return exchanges_.may_receive(turn.part, turn.micro_batch, action.tensor);
    if (action.kind != ActionKind::send) return true;
    return exchanges_.may_send(turn.part, taker(action.peer, turn.micro_batch), turn.micro_batch);
  }

  /// On the part's device, in the form that the action names.
  CopyKey key_of(const Action& action, const Turn& turn) const {
    CopyKey k = copies_.key(action.tensor, turn.micro_batch, copies_.memory_of(part(turn.part).device));
    k.form = copies_.form(tapes_[turn.part.index], action.form);
    return k;
  }

  void issue(const Action& action, const Turn& turn) {
    if (action.last_only && turn.micro_batch != last_turns_[turn.part.index][turn.piece]) return;
    const Part& here = part(turn.part);
    switch (action.kind) {
      case ActionKind::run:
        return run(action, turn.part, graph_[action.op].phase == Phase::update ? 0 : turn.micro_batch,
                   tapes_[turn.part.index].backprop);
      case ActionKind::send:
        return send(action, turn.part, turn.micro_batch);
      case ActionKind::receive:
        return copies_.wait_at_next(here.device, exchanges_.receive(turn.part, turn.micro_batch, action.tensor));
      case ActionKind::cut:
        return;
      case ActionKind::pack:
      case ActionKind::unpack:
        return copies_.convert(tapes_[turn.part.index], action, key_of(action, turn), here.device, turn.part);
      case ActionKind::drop:
      case ActionKind::copy:
      case ActionKind::move:
      case ActionKind::wait:
        break;
    }
    CopyKey k = key_of(action, turn);
    const bool whole = action.chunk.count == 1;
    const std::uint32_t first = whole ? 0 : action.chunk.index;
    const std::uint32_t end = whole ? copies_.chunks_of(action.tensor) : first + 1;
    for (k.chunk = first; k.chunk < end; ++k.chunk) issue_on_chunk(action, k, turn.part);
  }

  void issue_on_chunk(const Action& action, const CopyKey& on_device, PartId by) {
    const DeviceId device = part(by).device;
    const auto on_chunk = [&](MemoryId place) {
      CopyKey k = copies_.key_at(action.tensor, on_device.micro_batch, device, place);
      k.chunk = on_device.chunk;
      k.form = on_device.form;
      return k;
    };
    const CopyKey at = on_chunk(action.at);
    if (action.kind == ActionKind::drop) return drop(at, by);
    if (action.kind == ActionKind::wait) return copies_.wait_for_copy(at, on_device, device);
    const Way way{action.at, action.to};
    const CopyKey to = on_chunk(action.to);
    copies_.copy(action.tensor, at, to, {device, way}, way.is_inward() ? StepKind::prefetch : StepKind::offload);
    copies_.hold(action.tensor, copies_[to], by);
    if (action.kind == ActionKind::move) drop(at, by);
  }

  void drop(const CopyKey& k, PartId by) {
    Copy& copy = copies_[k];
    copy.holders.erase(by);
    if (copy.holders.empty()) copies_.drop(k, part(by).device);
  }

  void send(const Action& action, PartId by, std::uint32_t micro_batch) {
    const Part& here = part(by);
    const PartId peer = taker(action.peer, micro_batch);
    CopyKey from = key_of(action, {by, micro_batch});
    CopyKey to = from;
    to.memory = copies_.memory_of(part(peer).device).index;
    const bool stays = to == from;
    for (; from.chunk < copies_.chunks_of(action.tensor); ++from.chunk) {
      to.chunk = from.chunk;
      if (stays) {
        copies_[from].hold(peer);
        continue;
      }
      const Stream way{here.device, {place::device, MemoryId{to.memory}}};
      const StepId step = copies_.copy(action.tensor, from, to, way, StepKind::send);
      for (const StepId earlier : exchanges_.send(by, peer, micro_batch, action.tensor, step)) {
        if (earlier != step) copies_.wait(step, earlier);
      }
      if (partition_.sends_block) copies_.wait_at_next(here.device, {step});
      copies_[to].hold(peer);
    }
  }

  // --- compute

  /// Every copy of a part has its own updates; else who runs an op again recomputes it.
  StepKind kind_of(OpId op, std::uint32_t micro_batch) {
    if (graph_[op].phase == Phase::update) return StepKind::update;
    const std::size_t run = std::size_t{op.index} * problem_.micro_batches + micro_batch;
    if (ran_[run]) return StepKind::recompute;
    ran_[run] = true;
    return graph_[op].phase == Phase::forward ? StepKind::forward : StepKind::backward;
  }

  /// Blocks that go round have a stream of their own, as a group of NCCL's ranks has: sums do not wait for them.
  static std::uint32_t collective_stream(const Op& op) {
    return collective_of(op)->kind == CollectiveKind::shift ? 1 : 0;
  }

  /// A run of another micro-batch takes as long.
  Seconds known_duration(OpId op, DeviceId device, Saving saving, std::uint32_t implementation) {
    std::optional<Timed>& timed = timed_[op.index][saving == Saving::nothing ? 0 : 1];
    if (!timed || timed->device != device || timed->implementation != implementation) {
      timed = Timed{device, implementation, duration_on(problem_, op, device, saving, implementation)};
    }
    return timed->seconds;
  }

  /// On the device in the tape's order, or beside that; elsewhere after its compute before, in the time that the
  /// processor takes.
  void run(const Action& action, PartId by, std::uint32_t micro_batch, Backprop backprop) {
    const Part& here = part(by);
    const OpId id = action.op;
    if (problem_.clips_gradients && !are_clipped_ && updates_parameters(graph_[id])) {
      throw CannotLower{"'" + graph_[id].name +
                        "' runs before all gradients are there, and is to wait until they are clipped by their norm"};
    }
    const Saving saving = action.saving;
    const Op& op = graph_[id];
    const bool on_device = action.at == place::device, is_beside = on_device && runs_beside(op);
    const MemoryId memory = copies_.memory_at(here.device, action.at);
    NewStep& step = step_;
    step.clear();
    step.kind = kind_of(id, micro_batch);
    step.stream = is_beside ? copies_.stream(here.device, way::network, collective_stream(op))
                            : copies_.stream(here.device, Way{action.at, action.at});
    step.op = id;
    step.implementation = action.implementation;
    step.micro_batch = micro_batch;
    step.work.seconds =
        on_device ? known_duration(id, here.device, saving, action.implementation) : copies_.duration_at(memory, id);
    step.memory_bound = on_device && !is_beside && is_memory_bound(graph_, op, problem_.platform[here.device]);
    const bool goes_first = is_pinned_to_host(op) || (is_beside && op.phase == Phase::update);
    if (on_device && !is_beside) {
      copies_.take_waits(here.device, step.waits);
    } else if (const auto last = copies_.last_compute(here.device); last && !goes_first) {
      step.waits.push_back(*last);
    }

    std::vector<std::pair<TensorId, Copy*>>& used = used_;  // inputs, then outputs
    used.clear();
    std::vector<Copy*>& overwritten = overwritten_;
    overwritten.clear();
    for (const TensorId t : op.inputs) {
      CopyKey k = versions_.key(op, t, by, micro_batch, copies_.key_at(t, micro_batch, here.device, action.at));
      k = copies_.read_by(op, t, k);
      const bool changes = std::ranges::find(op.mutates, t) != op.mutates.end();
      const bool leaves_it = changes && versions_.leaves(t, by);
      if (leaves_it) used.emplace_back(t, &copies_.made_by(step, t, versions_.next(k)));
      for (; k.chunk < copies_.chunks_of(t); ++k.chunk) {
        used.emplace_back(t, &copies_.read(t, k, changes && !leaves_it, step));
        if (graph_[t].kind == TensorKind::input) used.back().second->hold(by);
        if (changes) overwritten.push_back(used.back().second);
      }
      std::optional<CopyKey> also = copies_.read_beside(op, t, k);
      for (; also && also->chunk < copies_.chunks_of(t); ++also->chunk)
        used.emplace_back(t, &copies_.read(t, *also, false, step));
    }
    earlier_.read(copies_, id, micro_batch, here.device, step, used);
    if (on_device && op.load > Seconds{0} && !copies_.fills_inputs(step)) {
      step.work.seconds = duration_again_on(problem_, id, here.device, saving, action.implementation);
    }
    step.work.seconds = within(backprop, op, graph_.source, problem_.platform[here.device], step.work.seconds);
    const std::size_t inputs = used.size();
    bool makes_gradient = false, new_gradient = false;
    std::vector<std::pair<TensorId, Copy*>> in_place;  // outputs in the place of an input
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      const bool gradient = graph_[t].kind == TensorKind::parameter_gradient;
      makes_gradient |= gradient;
      for (CopyKey k = copies_.key_at(t, micro_batch, here.device, action.at); k.chunk < copies_.chunks_of(t);
           ++k.chunk) {
        const auto [found, is_new] = copies_.found_or_made_by(step, t, k);
        if (is_new) {
          new_gradient |= gradient;
          used.emplace_back(t, found);
          copies_.hold(t, *used.back().second, by);
        } else if (gradient) {
          step.writes.push_back(found->buffer);
          used.emplace_back(t, found);
          step.waits.insert(step.waits.end(), found->users.begin(), found->users.end());
          overwritten.push_back(found);
        } else {
          copies_.hold(t, *found, by);
          if (std::ranges::find(overwritten, found) != overwritten.end()) in_place.emplace_back(t, found);
        }
      }
    }
    std::optional<std::uint32_t>& first = first_backward_[by.index];
    if (!first && is_backward(op.phase)) first = micro_batch;
    const bool before_call = micro_batch != first || problem_.gradients == Gradients::existing;
    const bool existed = backprop == Backprop::by_stage ? !new_gradient : before_call;
    if (on_device || op.phase != Phase::update) {  // a processor updates element by element
      step.workspace = workspace(op, saving, makes_gradient && existed, action.implementation, backprop);
    }
    if (on_device) copies_.compute_on_packed(std::span(used).first(inputs), here.device, step);
    for (const auto& [t, copy] : used) copy->add_makers(step.waits);
    copies_.carry_approximations(op, std::span(used).first(inputs), std::span(used).subspan(inputs));
    copies_.carry_approximations(op, std::span(used).first(inputs), in_place);
    const StepId issued = on_device && !is_beside ? copies_.add_compute(step, here.device) : copies_.add(step);
    for (const auto& [t, copy] : used) {
      if (!copy->maker) copy->maker = issued;
      copy->users.push_back(issued);
    }
    for (Copy* copy : overwritten) copy->overwritten(issued);  // what reads it next may be on another stream
    for (std::size_t made = inputs; is_beside && made < used.size(); ++made) used[made].second->overwritten(issued);
    if (op.phase == Phase::update) {
      updates_run_.emplace(by, id);
      return;
    }
    for (const TensorId t : op.outputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient) owners_.contributed(t);
    }
  }

  // --- after all micro-batches

  void issue_ends() {
    if (versions_.come_within()) return;  // the updates have run
    owners_.sum();
    if (problem_.clips_gradients) {
      sum_over_ranks();
      clip_gradients(problem_, owners_, copies_);
      are_clipped_ = true;
    }
    for (std::uint32_t p = 0; p < tapes_.size(); ++p) {
      for (const Action& action : tapes_[p].end) issue(action, {PartId{p}, 0});
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase != Phase::update) continue;
      for (const Part* owner : owners_.of(graph_.ops[o])) {
        const auto p = static_cast<std::size_t>(owner - partition_.parts.data());
        if (updates_run_.contains({id_at<PartId>(p), id_at<OpId>(o)})) continue;
        run(plimsoll::run(id_at<OpId>(o)), id_at<PartId>(p), 0, tapes_[p].backprop);
        owners_.hand_out(graph_.ops[o], *owner);
      }
    }
  }

  /// Before updates: what ranks sum of gradients, and has not run within a tape.
  void sum_over_ranks() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      const bool sums =
          op.phase == Phase::update && collective_of(op) &&
          std::ranges::any_of(op.mutates, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; });
      if (!sums) continue;
      for (const Part* owner : owners_.of(op)) {
        const auto by = id_at<PartId>(static_cast<std::size_t>(owner - partition_.parts.data()));
        if (!updates_run_.contains({by, id_at<OpId>(o)}))
          run(plimsoll::run(id_at<OpId>(o)), by, 0, tapes_[by.index].backprop);
      }
    }
  }

  struct Timed {
    DeviceId device;
    std::uint32_t implementation;
    Seconds seconds;
  };

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  std::span<const Tape> tapes_;
  std::vector<std::array<std::optional<Timed>, 2>> timed_;          // by op, where it ran last: without, with saving
  std::vector<std::array<Piece, piece_names>> pieces_;              // by part and name
  std::vector<std::array<std::uint32_t, piece_names>> last_turns_;  // by part and piece: the micro-batch
  std::vector<std::size_t> micro_batches_;                          // by part: how many it takes
  std::map<OpId, std::size_t> copies_of_;                           // by first op: of a part
  std::map<std::pair<OpId, std::uint32_t>, PartId> takers_;         // by first op and micro-batch, of parts with copies
  std::vector<Place> places_;                                       // by device
  std::vector<std::optional<std::uint32_t>> first_backward_;        // by part: of which micro-batch
  LiveCopies copies_;
  GradientOwners owners_;
  WeightVersions versions_;
  EarlierSlices earlier_;
  ExchangeOrder exchanges_;
  std::vector<bool> ran_;     // by op and micro-batch
  bool are_clipped_ = false;  // gradients, where that is asked for
  NewStep step_;              // the one that is made, and what it uses: their room is used again
  std::vector<std::pair<TensorId, Copy*>> used_;
  std::vector<Copy*> overwritten_;
  std::set<std::pair<PartId, OpId>> updates_run_;
};

}  // namespace

std::variant<Schedule, std::string> lower(const Problem& problem, const Partition& partition,
                                          std::span<const Tape> tapes) {
  EXPECTS(partition.parts.size() == tapes.size());
  EXPECTS(partition.order.size() <= problem.platform.devices.size());
  return Lowering(problem, partition, tapes).run();
}

}  // namespace plimsoll
