#pragma once
// Between two best trades of bytes for time: pieces of what one runs again and the other keeps, of which as many
// seconds' worth as there is room for are kept, too.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/bound/snapshot_cut.h"

namespace plimsoll {

/// That which to take, ascending: the most seconds of all sets within the room, if bytes are rounded up to a thousandth
/// of the room. Pieces of no bytes are always taken.
struct PieceWorth {
  std::int64_t bytes = 0;
  double seconds = 0;
};
std::vector<std::size_t> worthiest(std::span<const PieceWorth>, std::int64_t room);

/// The numbers that are in, each with all that pairs of such numbers connect it to, ascending.
std::vector<std::vector<std::uint32_t>> pieces_of(const std::vector<bool>& in,
                                                  std::span<const std::pair<std::uint32_t, std::uint32_t>> pairs);

/// By op: whether it runs after the instant, of the cut that fits, less pieces that the one that does not keeps.
std::vector<bool> filled(const SnapshotModel&, const SnapshotCut& within, const std::optional<SnapshotCut>& over,
                         Bytes room);

}  // namespace plimsoll
