#pragma once
// Micro-batches of a pipeline whose values are away between forward and backward: when they leave and come back.

#include <span>

#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// The partition with a turn `arrive` for every backward of parts whose tape has such a piece and no `leave`: as many
/// turns earlier as it takes to bring back what it does, but not before the micro-batch's own forward.
Partition with_arrivals(const Problem&, Partition, std::span<const Tape>);

/// The tape of a part whose micro-batches may wait elsewhere (Part::waits_at), with pieces in which what they keep for
/// the backward leaves and comes back. The network's input stays, and what a part of the same device has sent. `tape`
/// moves nothing itself.
Tape with_absence(const Problem&, const Partition&, PartId, const Tape&);

/// How long it takes to bring back what one micro-batch of the part, in plain training, keeps for its backward; and to
/// take it away.
struct AbsenceCost {
  Seconds leaving, returning;
};
AbsenceCost absence_cost(const Problem&, const Partition&, PartId, const Tape&);

}  // namespace plimsoll
