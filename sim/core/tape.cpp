#include "sim/core/tape.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/slices.h"

namespace plimsoll {
namespace {

/// Which storages an action reads and makes; a tensor stands for its storage.
struct Touched {
  std::vector<TensorId> reads, makes;
};

bool dies(const Graph& graph, TensorId t) {
  return per_micro_batch(graph[t].kind);
}

/// In the room that was there for an action before.
void note_touched(const Graph& graph, const Action& action, Touched& touched) {
  touched.reads.clear();
  touched.makes.clear();
  switch (action.kind) {
    case ActionKind::run: {
      if (action.at != place::device) break;
      const Op& op = graph[action.op];
      const auto shares = [&](TensorId out) {
        return std::ranges::any_of(op.inputs, [&](TensorId in) { return graph[in].storage == graph[out].storage; });
      };
      for (const TensorId t : op.inputs) {
        if (dies(graph, t)) touched.reads.push_back(t);
      }
      for (const TensorId t : op.outputs) {
        const bool omitted = action.saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end();
        if (dies(graph, t) && !omitted && !shares(t)) touched.makes.push_back(t);
      }
      break;
    }
    case ActionKind::copy:
    case ActionKind::move:
      if (action.at == place::device) touched.reads.push_back(action.tensor);
      if (action.to == place::device) touched.makes.push_back(action.tensor);
      break;
    case ActionKind::send:
      touched.reads.push_back(action.tensor);
      break;
    case ActionKind::receive:
      touched.makes.push_back(action.tensor);
      break;
    case ActionKind::pack:
    case ActionKind::unpack:
      EXPECTS(false && "packed forms are dropped by the strategy that makes them");
    case ActionKind::drop:
    case ActionKind::wait:
    case ActionKind::cut:
      break;
  }
}

}  // namespace

std::array<Piece, piece_names> pieces_of(const Tape& tape) {
  std::array<Piece, piece_names> pieces;
  Piece* at = pieces.data();
  for (std::size_t a = 0; a < tape.actions.size(); ++a) {
    if (tape.actions[a].kind != ActionKind::cut) continue;
    at->last = a + 1;
    at = &pieces[number_of(tape.actions[a].next)];
    EXPECTS(at->last == 0);
    at->first = at->last = a + 1;
  }
  at->last = tape.actions.size();
  return pieces;
}

std::size_t steps_of_turns(const Partition& partition, std::span<const Tape> tapes) {
  const auto is_step = [](const Action& action) {
    using enum ActionKind;
    return action.kind != drop && action.kind != receive && action.kind != cut && action.kind != wait;
  };
  std::vector<std::array<std::size_t, piece_names>> steps(tapes.size());
  for (std::size_t p = 0; p < tapes.size(); ++p) {
    const std::array<Piece, piece_names> pieces = pieces_of(tapes[p]);
    for (std::size_t n = 0; n < piece_names; ++n) {
      const std::span<const Action> actions(tapes[p].actions);
      const auto of_piece = actions.subspan(pieces[n].first, pieces[n].last - pieces[n].first);
      steps[p][n] = static_cast<std::size_t>(std::ranges::count_if(of_piece, is_step));
    }
  }
  std::size_t sum = 0;
  for (const std::vector<Turn>& order : partition.order) {
    for (const Turn& turn : order) sum += steps[turn.part.index][turn.piece];
  }
  return sum;
}

PieceName last_piece(const Tape& tape) {
  PieceName last = PieceName::forward;
  for (const Action& action : tape.actions) {
    if (action.kind == ActionKind::cut) last = action.next;
  }
  return last;
}

bool has_piece(const Tape& tape, PieceName name) {
  return std::ranges::any_of(tape.actions,
                             [&](const Action& a) { return a.kind == ActionKind::cut && a.next == name; });
}

Tape with_drops(const Graph& graph, Tape tape) {
  std::erase_if(tape.actions, [](const Action& a) { return a.kind == ActionKind::drop && a.at == place::device; });
  std::vector<bool> read_later(graph.storages, false);
  const bool has_slices = sequence_slices(graph) > 1;
  std::vector<Action> reversed;
  reversed.reserve(3 * tape.actions.size());
  std::vector<TensorId> last_used;
  Touched touched;
  for (std::size_t a = tape.actions.size(); a-- > 0;) {
    note_touched(graph, tape.actions[a], touched);
    last_used.clear();
    const auto note = [&](TensorId t) {
      if (!read_later[graph[t].storage.index]) last_used.push_back(t);
      read_later[graph[t].storage.index] = true;  // and so it is listed once
    };
    std::ranges::for_each(touched.makes, note);
    std::ranges::for_each(touched.reads, note);
    for (std::size_t d = last_used.size(); d-- > 0;) reversed.push_back(on_tensor(ActionKind::drop, last_used[d]));
    const bool runs = tape.actions[a].kind == ActionKind::run;
    const auto stays = has_slices && runs ? attended_by(graph, graph[tape.actions[a].op]) : std::nullopt;
    for (const TensorId t : touched.makes) {
      if (t != stays) read_later[graph[t].storage.index] = false;  // later slices read it until its last use
    }
    for (const TensorId t : touched.reads) read_later[graph[t].storage.index] = true;
    reversed.push_back(tape.actions[a]);
  }
  std::ranges::reverse(reversed);
  tape.actions = std::move(reversed);
  return tape;
}

}  // namespace plimsoll
