#pragma once
// What one device does for one part of the graph and one micro-batch, in order. Memory strategies make and change
// tapes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/codec.h"
#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/partition.h"
#include "sim/core/places.h"
#include "sim/core/scaling.h"

namespace plimsoll {

/// "The compute before" is what the tape runs on the device before this action.
enum class ActionKind : std::uint8_t {
  run,   ///< compute `op` on what is `at` a place, again if it has run before; saves for backward what `saving` says.
         ///< Elsewhere than on the device: not before the compute before
  drop,  ///< free the copy of `tensor` that is `at` a place, once every action issued before has used it
  copy,  ///< copy `tensor` from `at` to `to`, not before the compute before; the copy at `at` stays
  move,  ///< as copy, and the copy at `at` is freed
  wait,  ///< the device's next compute, and copies towards the device before it, wait until the copy `at` a place is
         ///< whole; if the device's own was dropped, also until it is gone
  send,  ///< copy `tensor` to the device of `peer`, or of that copy of it which takes the micro-batch
  receive,  ///< nothing further is issued before `tensor` has been sent here
  pack,     ///< make the packed `form` of `tensor` beside it, on the device
  unpack,   ///< make what the packed `form` of `tensor` restores of it, beside the packed form
  cut,      ///< a piece of the tape ends: the device may take other turns before the next
};

/// One of `count` almost equal ranges of a tensor, moved and freed on its own; a tape cuts a storage in one way only.
struct Chunk {
  std::uint32_t index = 0, count = 1;
};

/// A value may be there in several forms, each of which is copied and dropped on its own. An op reads what has been
/// restored, where there is such; else the value itself; else a packed form that it can do with as it is.
struct Form {
  enum class Kind : std::uint8_t { plain, packed, restored };
  Kind kind = Kind::plain;
  std::uint32_t codec = 0;  ///< index into the tape's codecs

  friend constexpr auto operator<=>(Form, Form) = default;
};

struct Action {
  ActionKind kind = ActionKind::run;
  OpId op;
  Saving saving = Saving::keep;
  TensorId tensor;
  PartId peer;
  bool last_only = false;            ///< in the part's last turn at this piece only, when its gradients are complete
  std::uint32_t implementation = 0;  ///< of run: of the op's alternatives
  Chunk chunk = {};  ///< of copy, move, wait and drop; a count of 1 is all of the tensor, however it is cut
  MemoryId at = place::device, to = place::device;
  Form form = {};  ///< of pack and unpack: the packed one; of drop, copy, move, wait, send and receive
  PieceName next = PieceName::forward;  ///< of cut: the piece that begins here
};

inline Action run(OpId op, Saving saving = Saving::keep, std::uint32_t implementation = 0) {
  return {
      .kind = ActionKind::run, .op = op, .saving = saving, .tensor = {}, .peer = {}, .implementation = implementation};
}
inline Action run_at(MemoryId at, OpId op) {
  Action action = run(op);
  action.at = at;
  return action;
}
/// Of drop, send, receive, and wait for what is on the device.
inline Action on_tensor(ActionKind kind, TensorId tensor, PartId peer = {}) {
  return {.kind = kind, .op = {}, .saving = Saving::keep, .tensor = tensor, .peer = peer};
}
/// Of drop and wait.
inline Action on_copy_at(MemoryId at, ActionKind kind, TensorId tensor, Chunk chunk = {}) {
  Action action = on_tensor(kind, tensor);
  action.chunk = chunk;
  action.at = at;
  return action;
}
/// Of copy and move.
inline Action along(Way way, ActionKind kind, TensorId tensor, Chunk chunk = {}) {
  Action action = on_copy_at(way.from, kind, tensor, chunk);
  action.to = way.to;
  return action;
}
/// Of pack and unpack.
inline Action by_codec(ActionKind kind, TensorId tensor, std::uint32_t codec) {
  Action action = on_tensor(kind, tensor);
  action.form = {Form::Kind::packed, codec};
  return action;
}
/// Of drop, copy, move, wait, send and receive.
inline Action in_form(Form form, Action action) {
  action.form = form;
  return action;
}
inline Action cut_before(PieceName next) {
  Action action = on_tensor(ActionKind::cut, {});
  action.next = next;
  return action;
}

/// Bytes of a tensor before the chunk, and in it.
struct ChunkRange {
  Bytes offset, length;
};
constexpr ChunkRange range_of(Bytes whole, Chunk chunk) {
  const std::int64_t count = chunk.count, size = whole.count / count, larger = whole.count % count;
  const auto begin = [&](std::int64_t i) { return i * size + std::min(i, larger); };
  return {Bytes{begin(chunk.index)}, Bytes{begin(chunk.index + 1) - begin(chunk.index)}};
}

/// The memories that hold a parameter or optimizer state when an iteration begins and when it ends.
struct Home {
  TensorId tensor;
  std::vector<MemoryId> memories;

  bool has(MemoryId place) const { return std::ranges::find(memories, place) != memories.end(); }
};

/// A copy action writes over the copy that is at its target already (as at home), or makes a new one.
struct Tape {
  std::vector<Action> actions;  ///< for each micro-batch
  std::vector<Action> end;  ///< once, after the last one: updates. Those that the tape does not run follow, in order
  std::vector<Codec> codecs;
  std::vector<Home> homes;                 ///< of the tensors whose home is not, or not only, the device
  Backprop backprop = Backprop::by_stage;  ///< in_one_call only for tapes that repeat and move nothing
};

/// A piece of a tape: actions [first, last).
struct Piece {
  std::size_t first = 0, last = 0;
};

/// The tape's pieces by name, each there at most once; empty ones where it has none of that name. Of a tape that is not
/// cut all is its forward piece.
std::array<Piece, piece_names> pieces_of(const Tape&);

/// Of the tape's pieces.
PieceName last_piece(const Tape&);

/// Whether the tape is cut before a piece of that name.
bool has_piece(const Tape&, PieceName);

/// About how many steps the turns of the partition come to: those of whole tensors.
std::size_t steps_of_turns(const Partition&, std::span<const Tape>);

/// Every value dropped right after its last use before it is made anew; what later slices read, after its last use.
Tape with_drops(const Graph&, Tape);

}  // namespace plimsoll
