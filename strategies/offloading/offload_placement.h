#pragma once
// When to wait for offloads and when to begin prefetches, so that a budget holds whatever the copies take.
//
// A moved item is absent at positions [gone, back). At every position
//   memory(p) - sum of the items absent at p <= budget,
// where position `gone` waits for the copy to the host and the copy back waits for position back - 1: what must wait
// waits by a dependency. `back` comes from a walk backwards in time, in which a prefetch is an offload: as late as the
// copies, queued behind each other, allow without a stall, later only where memory is short. `gone` comes from a walk
// forwards, in which a position waits for as few offloads, in their order, as it must.

#include "strategies/offloading/offload_moves.h"

namespace plimsoll {

struct Placement {
  std::vector<OffloadMove> moves;  ///< in the order in which they leave
  Seconds makespan;                ///< of one micro-batch, if nobody shares the links
};

/// Nothing where these items do not suffice for the budget. Items whose way there and back is longer than their gap
/// stay.
std::optional<Placement> place(const OffloadModel&, std::span<const OffloadItem>, Bytes budget);

}  // namespace plimsoll
