#pragma once
// What every backend's networks have in common of each kind of op: the shape of its result, what its backward is, and
// what it is said to cost before anything has been measured.

#include "sim/core/graph.h"
#include "sim/core/op_kind.h"

namespace plimsoll {

using Shape = std::vector<std::int64_t>;
class BackwardWriter;

struct OpRule {
  OpKind kind;

  /// Of what a forward makes, from its inputs and attributes. Null for gradients, which have the shape of what they are
  /// of, and for updates, which make nothing.
  Shape (*result)(const Graph&, const Op&);
  /// Writes what a forward needs for its gradients. Null for gradients and updates.
  void (*backward)(BackwardWriter&, const Op& forward);

  Flops (*flops)(const Graph&, const Op&);
  Bytes (*bytes_moved)(const Graph&, const Op&);
};

const OpRule& rule_of(OpKind);

/// A broken promise where the op's kind is none of ours.
const OpRule& rule_of(const Op&);

}  // namespace plimsoll
