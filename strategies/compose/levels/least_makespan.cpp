#include "strategies/compose/levels/least_makespan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/platform.h"
#include "sim/core/scaling.h"

namespace plimsoll {
namespace {

/// A value that one device sends another, and where in the sender's tape it is made.
struct DatedCrossing {
  std::size_t senders = 0;                       ///< actions; of one alone it is known when it is sent
  PartId part = {};                              ///< the sender
  std::optional<std::size_t> maker;              ///< action in the same piece, behind what the device computes before
  Seconds transfer;                              ///< alone
  std::vector<std::optional<Seconds>> arrivals;  ///< by micro-batch: at the earliest

  bool is_known() const { return senders == 1 && maker; }
};

/// Of what a device does in a piece of a tape.
struct Event {
  enum class Kind : std::uint8_t { compute, send, receive };
  Kind kind = Kind::compute;
  Seconds time = {};                  ///< of compute
  DatedCrossing* crossing = nullptr;  ///< of the others
};

class Turns {
 public:
  Turns(const Problem& problem, const Partition& partition, std::span<const Tape> tapes)
      : problem_(problem), graph_(problem.graph), partition_(partition), tapes_(tapes), routes_(problem.platform) {
    std::set<OpId> first_ops;
    bool has_copies = false;
    for (const Part& part : partition.parts) has_copies |= !first_ops.insert(part.ops.front()).second;
    for (std::size_t p = 0; p < tapes.size() && !has_copies; ++p) note_sends(id_at<PartId>(p));
    for (auto& [key, crossing] : crossings_) {
      if (!crossing.is_known()) continue;
      crossing.arrivals.resize(problem.micro_batches);
      sent_.emplace(std::pair(crossing.part, *crossing.maker), &crossing);
    }
    for (std::size_t p = 0; p < tapes.size(); ++p) note_events(id_at<PartId>(p));
  }

  /// The end of the last computation; 0 where the devices wait for each other in a circle.
  Seconds end() {
    places_.resize(partition_.order.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < places_.size(); ++d) moved |= pass_turns(partition_.order[d], places_[d]);
    }
    Seconds last;
    for (std::size_t d = 0; d < places_.size(); ++d) {
      if (places_[d].turn < partition_.order[d].size()) return {};
      last = std::max(last, places_[d].now);
    }
    return last;
  }

 private:
  using Key = std::pair<StorageId, DeviceId>;  // what is sent, and to which device

  DeviceId device_of(PartId part) const { return partition_.parts[part.index].device; }

  Seconds transfer(TensorId t, DeviceId from, DeviceId to) {
    const MemoryId source = problem_.platform[from].memory, target = problem_.platform[to].memory;
    if (source == target) return {};
    const std::optional<Route> route = routes_.between(source, target);
    return route ? route->latency + graph_[t].bytes / route->bandwidth : Seconds{};
  }

  void note_sends(PartId by) {
    const Tape& tape = tapes_[by.index];
    std::set<StorageId> received;
    std::map<StorageId, std::size_t> makers;  // actions
    for (std::size_t a = 0; a < tape.actions.size(); ++a) {
      const Action& action = tape.actions[a];
      if (action.kind == ActionKind::receive) received.insert(graph_[action.tensor].storage);
      if (action.kind != ActionKind::run) continue;
      for (const TensorId t : graph_[action.op].outputs) makers.try_emplace(graph_[t].storage, a);
    }
    for (const Piece& piece : pieces_of(tape)) {
      for (std::size_t a = piece.first; a < piece.last; ++a) {
        const Action& send = tape.actions[a];
        if (send.kind != ActionKind::send) continue;
        const StorageId s = graph_[send.tensor].storage;
        DatedCrossing& crossing = crossings_[{s, device_of(send.peer)}];
        ++crossing.senders;
        const auto maker = makers.find(s);
        if (maker == makers.end() || received.contains(s) || send.last_only) continue;
        if (!per_micro_batch(graph_[send.tensor].kind)) continue;
        if (maker->second < piece.first || maker->second > a || !is_behind_compute(tape.actions[maker->second]))
          continue;
        crossing.part = by;
        crossing.maker = maker->second;
        crossing.transfer = transfer(send.tensor, device_of(by), device_of(send.peer));
      }
    }
  }

  bool is_behind_compute(const Action& run) const {
    const Op& op = graph_[run.op];
    return !run.last_only && op.phase != Phase::update && !is_pinned_to_host(op);
  }

  // --- what devices do in a turn

  void note_events(PartId by) {
    const Tape& tape = tapes_[by.index];
    const std::array<Piece, piece_names> pieces = pieces_of(tape);
    std::array<std::vector<Event>, piece_names>& events = events_.emplace_back();
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      std::set<StorageId> received;  // and not read yet
      for (std::size_t a = pieces[k].first; a < pieces[k].last; ++a) {
        const Action& action = tape.actions[a];
        if (action.kind == ActionKind::receive) received.insert(graph_[action.tensor].storage);
        if (action.kind == ActionKind::run) note_run(by, a, received, events[k]);
      }
    }
  }

  void note_run(PartId by, std::size_t a, std::set<StorageId>& received, std::vector<Event>& events) {
    const Action& action = tapes_[by.index].actions[a];
    const Op& op = graph_[action.op];
    if (!action.last_only && action.at == place::device && !runs_beside(op)) {
      for (const TensorId t : op.inputs) {
        const StorageId s = graph_[t].storage;
        const auto found = crossings_.find({s, device_of(by)});
        if (received.erase(s) == 0 || found == crossings_.end() || !found->second.is_known()) continue;
        events.push_back({.kind = Event::Kind::receive, .crossing = &found->second});
      }
      if (events.empty() || events.back().kind != Event::Kind::compute) events.emplace_back();
      const Seconds alone = duration_again_on(problem_, action.op, device_of(by), action.saving, action.implementation);
      const Device& device = problem_.platform[device_of(by)];
      events.back().time += within(tapes_[by.index].backprop, op, graph_.source, device, alone);
    }
    const auto [first, last] = sent_.equal_range({by, a});
    for (auto sent = first; sent != last; ++sent) {
      events.push_back({.kind = Event::Kind::send, .crossing = sent->second});
    }
  }

  // --- turns, one after the other

  struct Place {
    std::size_t turn = 0, event = 0;
    Seconds now = {};
  };

  /// Until the device waits for another one; whether there was anything to pass.
  bool pass_turns(const std::vector<Turn>& turns, Place& place) const {
    const Place before = place;
    for (; place.turn < turns.size(); ++place.turn, place.event = 0) {
      const Turn& turn = turns[place.turn];
      const std::vector<Event>& events = events_[turn.part.index][turn.piece];
      for (; place.event < events.size(); ++place.event) {
        if (!pass(events[place.event], turn.micro_batch, place.now)) {
          return place.turn > before.turn || place.event > before.event;
        }
      }
    }
    return place.turn > before.turn;
  }

  /// False where what is received has not been sent.
  static bool pass(const Event& event, std::uint32_t micro_batch, Seconds& now) {
    if (event.kind == Event::Kind::compute) {
      now += event.time;
      return true;
    }
    std::optional<Seconds>& arrival = event.crossing->arrivals[micro_batch];
    if (event.kind == Event::Kind::send) {
      arrival = now + event.crossing->transfer;
    } else if (arrival) {
      now = std::max(now, *arrival);
    }
    return arrival.has_value();
  }

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  std::span<const Tape> tapes_;
  RouteFinder routes_;
  std::map<Key, DatedCrossing> crossings_;
  std::multimap<std::pair<PartId, std::size_t>, DatedCrossing*> sent_;  // by part and action that makes it
  std::vector<std::array<std::vector<Event>, piece_names>> events_;     // by part and piece
  std::vector<Place> places_;                                           // by device
};

}  // namespace

Seconds least_makespan(const Problem& problem, const Partition& partition, std::span<const Tape> tapes) {
  if (std::ranges::any_of(tapes, [](const Tape& tape) { return !tape.codecs.empty(); })) return {};
  return Turns(problem, partition, tapes).end();
}

}  // namespace plimsoll
