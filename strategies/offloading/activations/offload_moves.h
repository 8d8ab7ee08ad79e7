#pragma once
// An offload plan: which ranges of which values leave the device in which gap, and when; as a tape, with its promise.

#include <optional>
#include <span>
#include <vector>

#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// What may be moved on its own: a gap's value or a chunk of it.
struct OffloadItem {
  std::uint32_t gap = 0;
  Chunk chunk;
  Bytes bytes;
};

OffloadItem chunk_of(const OffloadModel&, std::uint32_t gap, Chunk);

/// Every gap with positions between its uses, cut into so many chunks where it has as many bytes.
std::vector<OffloadItem> offload_items(const OffloadModel&, std::uint32_t chunks);

struct OffloadMove {
  OffloadItem item;
  std::uint32_t issue = 0;                    ///< the copy to the host begins after this position at the earliest
  std::uint32_t gone = 0;                     ///< this position, and prefetches before it, wait until it has left
  std::uint32_t back = 0;                     ///< the copy back begins right before this position at the earliest
  std::optional<std::uint32_t> copied = {};   ///< this position waits for the end of the copy to the host
  std::optional<std::uint32_t> arrived = {};  ///< this position waits for the copy back, before the next use does
};

/// The tape with these moves. Offloads after a position are issued in the order given, prefetches before one in the
/// order in which they are needed.
Tape offload_tape(const OffloadModel&, std::span<const OffloadMove>);

/// Lowered and simulated: the exact promise. Nothing where the host has too little memory for it.
std::optional<PlannedTape> simulated_tape(const PartTask&, const OffloadModel&, Tape);
std::optional<PlannedTape> planned_moves(const PartTask&, const OffloadModel&, std::span<const OffloadMove>);

// When to wait for offloads and when to begin prefetches, so that a budget holds whatever the copies take.
//
// A moved item is absent at positions [gone, back). At every position
//   memory(p) - sum of the items absent at p <= budget,
// where position `gone` waits for the copy to the host and the copy back waits for position back - 1: what must wait
// waits by a dependency. `back` comes from a walk backwards in time, in which a prefetch is an offload: as late as the
// copies, queued behind each other, allow without a stall, later only where memory is short. `gone` comes from a walk
// forwards, in which a position waits for as few offloads, in their order, as it must.

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
