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

}  // namespace plimsoll
