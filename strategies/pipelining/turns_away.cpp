#include "strategies/pipelining/turns_away.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "strategies/models/chain_part.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t forward = number_of(PieceName::forward), backward = number_of(PieceName::backward),
                        arrive = number_of(PieceName::arrive);

/// Of a tape's pieces: how long their computes take.
std::array<Seconds, piece_names> times_of(const Problem& problem, const Part& part, const Tape& tape) {
  std::array<Seconds, piece_names> times;
  const std::array<Piece, piece_names> pieces = pieces_of(tape);
  for (std::size_t n = 0; n < pieces.size(); ++n) {
    for (std::size_t a = pieces[n].first; a < pieces[n].last; ++a) {
      const Action& action = tape.actions[a];
      if (action.kind != ActionKind::run || action.at != place::device) continue;
      times[n] += duration_on(problem, action.op, part.device, action.saving, action.implementation);
    }
  }
  return times;
}

/// To copy so many bytes from a place to another, seen from the device.
Seconds copying(const Problem& problem, DeviceId device, Way way, Bytes bytes) {
  const std::optional<MemoryId> from = memory_at(problem.platform, device, way.from),
                                to = memory_at(problem.platform, device, way.to);
  if (!from || !to) return {};  // lowering says so
  const std::optional<Route> route = route_between(problem.platform, *from, *to);
  return route ? route->latency + bytes / route->bandwidth : Seconds{};
}

Seconds arriving(const Problem& problem, const Part& part, const Tape& tape) {
  const Piece piece = pieces_of(tape)[arrive];
  Seconds sum;
  for (std::size_t a = piece.first; a < piece.last; ++a) {
    const Action& action = tape.actions[a];
    if (action.kind != ActionKind::copy && action.kind != ActionKind::move) continue;
    sum += copying(problem, part.device, {action.at, action.to},
                   range_of(problem.graph[action.tensor].bytes, action.chunk).length);
  }
  return sum;
}

/// Whether the part before is on the same device: what it sends stays there as long as either part reads it.
bool shares_input(const Problem& problem, const Partition& partition, PartId id) {
  const Part& part = partition.parts[id.index];
  const std::size_t first = chain_part(problem, part).first;
  return first > 0 && partition.parts[part_of_stage(problem, partition, first - 1).index].device == part.device;
}

/// Values that the tape holds at its cut before the backward and that may leave, by the tensor that they were made or
/// received as.
std::vector<TensorId> kept_at_turn(const Problem& problem, const Partition& partition, PartId id, const Tape& tape) {
  const Graph& graph = problem.graph;
  const bool receives = !shares_input(problem, partition, id);
  std::vector<TensorId> kept;
  const auto begin = [&](TensorId t) {
    const bool counts = per_micro_batch(graph[t].kind) && graph[t].kind != TensorKind::input;
    const auto same = [&](TensorId k) { return graph[k].storage == graph[t].storage; };
    if (counts && std::ranges::none_of(kept, same)) kept.push_back(t);
  };
  const Piece piece = pieces_of(tape)[forward];
  for (std::size_t a = piece.first; a < piece.last; ++a) {
    const Action& action = tape.actions[a];
    EXPECTS(action.kind != ActionKind::copy && action.kind != ActionKind::move);
    if (action.kind == ActionKind::receive && receives) begin(action.tensor);
    if (action.kind == ActionKind::drop) {
      std::erase_if(kept, [&](TensorId k) { return graph[k].storage == graph[action.tensor].storage; });
    }
    if (action.kind != ActionKind::run) continue;
    const Op& op = graph[action.op];
    for (const TensorId t : op.outputs) {
      if (action.saving == Saving::keep || std::ranges::find(op.saved, t) == op.saved.end()) begin(t);
    }
  }
  std::erase_if(kept, [&](TensorId t) { return graph[t].bytes == Bytes{0}; });
  return kept;
}

}  // namespace

Partition with_arrivals(const Problem& problem, Partition partition, std::span<const Tape> tapes) {
  std::vector<std::array<Seconds, piece_names>> times;
  std::vector<Seconds> needed(tapes.size());
  std::vector<bool> arrives(tapes.size());
  for (std::size_t p = 0; p < tapes.size(); ++p) {
    times.push_back(times_of(problem, partition.parts[p], tapes[p]));
    arrives[p] = has_piece(tapes[p], PieceName::arrive) && !has_piece(tapes[p], PieceName::leave);
    if (arrives[p]) needed[p] = arriving(problem, partition.parts[p], tapes[p]);
  }
  for (std::vector<Turn>& order : partition.order) {
    std::vector<std::vector<Turn>> before(order.size());  // by turn: arrivals
    bool any = false;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Turn& turn = order[k];
      const std::size_t p = turn.part.index;
      if (turn.piece != backward || !arrives[p]) continue;
      std::size_t at = k;
      const auto is_own_forward = [&](const Turn& t) {
        return t.part == turn.part && t.micro_batch == turn.micro_batch && t.piece == forward;
      };
      for (Seconds ahead; at > 0 && ahead < needed[p] && !is_own_forward(order[at - 1]); --at) {
        ahead += times[order[at - 1].part.index][order[at - 1].piece];
      }
      before[at].push_back({turn.part, turn.micro_batch, arrive});
      any = true;
    }
    if (!any) continue;
    std::vector<Turn> all;
    for (std::size_t k = 0; k < order.size(); ++k) {
      all.insert(all.end(), before[k].begin(), before[k].end());
      all.push_back(order[k]);
    }
    order = std::move(all);
  }
  return partition;
}

Tape with_absence(const Problem& problem, const Partition& partition, PartId id, const Tape& tape) {
  const Part& part = partition.parts[id.index];
  EXPECTS(part.waits_at && !has_piece(tape, PieceName::arrive));
  const std::vector<TensorId> kept = kept_at_turn(problem, partition, id, tape);
  const Way out{place::device, *part.waits_at}, back{*part.waits_at, place::device};
  Tape made = tape;
  made.actions.clear();
  for (const Action& action : tape.actions) {
    if (action.kind == ActionKind::cut && action.next == PieceName::backward) {
      made.actions.push_back(cut_before(PieceName::leave));
      for (const TensorId t : kept) made.actions.push_back(along(out, ActionKind::move, t));
      made.actions.push_back(cut_before(PieceName::arrive));
      for (const TensorId t : kept) made.actions.push_back(along(back, ActionKind::move, t));
    }
    made.actions.push_back(action);
  }
  return made;
}

AbsenceCost absence_cost(const Problem& problem, const Partition& partition, PartId id, const Tape& tape) {
  const Part& part = partition.parts[id.index];
  EXPECTS(part.waits_at);
  AbsenceCost cost;
  for (const TensorId t : kept_at_turn(problem, partition, id, tape)) {
    const Bytes bytes = problem.graph[t].bytes;
    cost.leaving += copying(problem, part.device, {place::device, *part.waits_at}, bytes);
    cost.returning += copying(problem, part.device, {*part.waits_at, place::device}, bytes);
  }
  return cost;
}

}  // namespace plimsoll
