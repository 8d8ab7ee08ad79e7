#pragma once
// What one device does for one part of the graph and one micro-batch, in order. Memory strategies make and change
// tapes.

#include <cstdint>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/scaling.h"

namespace plimsoll {

enum class ActionKind : std::uint8_t {
  compute,   ///< run `op`, again if it has run before; saves for backward what `saving` says
  drop,      ///< the device's copy of `tensor` dies once what was issued before has used it
  offload,   ///< copy `tensor` to the host; the device's copy stays until a drop
  prefetch,  ///< copy `tensor` back from the host, not before the compute issued before; the host's copy dies
  wait,      ///< the next compute waits for the last copy of `tensor` to end
  send,      ///< copy `tensor` to the device of `peer`
  receive,   ///< nothing further is issued before `tensor` has been sent here
  await_output_gradient,  ///< a cut: the device may work on other micro-batches here
};

struct Action {
  ActionKind kind = ActionKind::compute;
  OpId op;
  Saving saving = Saving::keep;
  TensorId tensor;
  PartId peer;
};

inline Action compute(OpId op, Saving saving = Saving::keep) {
  return {.kind = ActionKind::compute, .op = op, .saving = saving, .tensor = {}, .peer = {}};
}
inline Action on_tensor(ActionKind kind, TensorId tensor, PartId peer = {}) {
  return {.kind = kind, .op = {}, .saving = Saving::keep, .tensor = tensor, .peer = peer};
}
inline Action await_output_gradient() {
  return {.kind = ActionKind::await_output_gradient, .op = {}, .saving = Saving::keep, .tensor = {}, .peer = {}};
}

struct Tape {
  std::vector<Action> actions;
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
