#pragma once
// Ops of one rank's graph that exchange values with the other ranks of an axis of the mesh. They name the collective
// and the axis in attributes, so that a written trace keeps them; their duration is that on the platform's links,
// whatever the device computes.

#include <optional>
#include <string_view>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct OpCollective {
  CollectiveKind kind;
  std::string_view axis;  ///< of the mesh; of a group over several of them `name+name`, the outermost first
  bool overlaps = false;  ///< on a stream of its own, beside what the device computes
};

/// Nothing for an op that computes.
std::optional<OpCollective> collective_of(const Op&);

/// Whether it exchanges values beside what its device computes.
bool runs_beside(const Op&);

/// Of the whole value, as CollectiveTimes::seconds takes them: what a rank gives, of an all_gather what it ends with,
/// of an all_to_all the more of both.
Bytes exchanged_bytes(const Graph&, const Op&);

/// An op `name` of that kind; tensors and duration are the caller's.
Op collective_op(std::string name, const OpCollective&, Phase);

}  // namespace plimsoll
