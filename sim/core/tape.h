#pragma once
// What one device does for one part of the graph and one micro-batch, in order. Memory strategies make and change
// tapes.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/scaling.h"

namespace plimsoll {

enum class ActionKind : std::uint8_t {
  compute,   ///< run `op`, again if it has run before; saves for backward what `saving` says
  drop,      ///< the device's copy of `tensor` dies once what was issued before has used it
  offload,   ///< copy `tensor` to the host, not before the compute issued before; the device's copy stays until a drop
  prefetch,  ///< copy `tensor` back from the host, not before the compute issued before; the host's copy dies unless
             ///< the host is its home
  wait,      ///< the next compute, and copies to device or host before it, wait for the last copy of `tensor` to end;
             ///< if the device's copy was dropped, also until it is gone
  send,      ///< copy `tensor` to the device of `peer`
  receive,   ///< nothing further is issued before `tensor` has been sent here
  await_output_gradient,  ///< a cut: the device may work on other micro-batches here
  update_on_host,         ///< run the update `op` on the host's copies, not before the compute issued before
  drop_on_host,           ///< the host's copy of `tensor` dies once what was issued before has used it
  read_disk,              ///< copy `tensor` from the disk to the host, not before the compute issued before
  write_disk,             ///< copy `tensor` from the host over the disk's copy
};

/// One of `count` almost equal ranges of a tensor, moved and freed on its own; a tape cuts a storage in one way only.
struct Chunk {
  std::uint32_t index = 0, count = 1;
};

struct Action {
  ActionKind kind = ActionKind::compute;
  OpId op;
  Saving saving = Saving::keep;
  TensorId tensor;
  PartId peer;
  bool last_only = false;            ///< in the last micro-batch only, when parameter gradients are complete
  std::uint32_t implementation = 0;  ///< of compute: of the op's alternatives
  Chunk chunk = {};  ///< of offload, prefetch, wait and drop; a count of 1 is all of the tensor, however it is cut
};

inline Action compute(OpId op, Saving saving = Saving::keep, std::uint32_t implementation = 0) {
  return {.kind = ActionKind::compute,
          .op = op,
          .saving = saving,
          .tensor = {},
          .peer = {},
          .implementation = implementation};
}
inline Action on_tensor(ActionKind kind, TensorId tensor, PartId peer = {}) {
  return {.kind = kind, .op = {}, .saving = Saving::keep, .tensor = tensor, .peer = peer};
}
inline Action on_chunk(ActionKind kind, TensorId tensor, Chunk chunk) {
  return {.kind = kind, .op = {}, .saving = Saving::keep, .tensor = tensor, .peer = {}, .chunk = chunk};
}
inline Action update_on_host(OpId op) {
  return {.kind = ActionKind::update_on_host, .op = op, .saving = Saving::keep, .tensor = {}, .peer = {}};
}
inline Action await_output_gradient() {
  return {.kind = ActionKind::await_output_gradient, .op = {}, .saving = Saving::keep, .tensor = {}, .peer = {}};
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

/// In which memories a parameter or optimizer state is when an iteration begins and when it ends.
struct Home {
  TensorId tensor;
  bool on_device = true, on_host = false, on_disk = false;
};

/// Copies of the actions write over the copy that is there already, as at home, or make a new one.
struct Tape {
  std::vector<Action> actions;  ///< for each micro-batch
  std::vector<Action> end;      ///< once, after the last one: the updates. Empty: all on the device, in order
  std::vector<Home> homes;      ///< of tensors that are not, or not only, on the device
  Backprop backprop = Backprop::by_stage;  ///< in_one_call: of tapes that repeat and move nothing
};

/// A piece of a tape: actions [first, last).
struct Piece {
  std::size_t first = 0, last = 0;
};

/// The tape's pieces, cut after each await.
std::vector<Piece> cut(const Tape&);

/// The tape with every value dropped right after its last use before it is made anew, and nothing dropped before.
Tape with_drops(const Graph&, Tape);

}  // namespace plimsoll
