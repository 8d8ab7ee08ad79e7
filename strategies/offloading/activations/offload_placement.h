#pragma once
// When to wait for offloads and when to begin prefetches, so that a budget holds whatever the copies take.
//
// A moved item is absent at positions [gone, back). At every position
//   memory(p) - sum of the items absent at p <= budget,
// where position `gone` waits for the copy to the host and the copy back waits for position back - 1: what must wait
// waits by a dependency. `back` comes from a walk backwards in time, in which a prefetch is an offload: as late as the
// copies, queued behind each other, allow without a stall, later only where memory is short. `gone` comes from a walk
// forwards, in which a position waits for as few offloads, in their order, as it must.

#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {

struct PlacedCopies {
  std::vector<OffloadMove> moves;  ///< in the order in which they leave
  std::vector<Seconds> late;       ///< by item: how long its use waits for it
  Seconds makespan;                ///< of one micro-batch, if nobody shares the links
};

/// Nothing where these items do not suffice for the budget. Items whose way there and back is longer than their gap
/// stay. `wanted`, where given, is by item the position before which it should begin to come back, instead of as late
/// as copies allow; it is later where memory is short.
std::optional<PlacedCopies> placed_items(const OffloadModel&, std::span<const OffloadItem>, Bytes budget,
                                         std::span<const std::uint32_t> wanted = {});

}  // namespace plimsoll
