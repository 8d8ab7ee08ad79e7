#pragma once
// Local search of placements: units move where that makes the emulated iteration shorter, or less too full.

#include <cstdint>
#include <functional>
#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"

namespace plimsoll {

/// Ways to order the ops of a placement.
enum class OrderBy : std::uint8_t { fifo, b_level, number, own };

Emulation emulate(const OpDag&, const Machine&, const Placement&, OrderBy);

/// What a placement is worth in an order: bytes above the limits of the fullest processor, then time.
struct PlacementScore {
  std::int64_t too_full = 0;  ///< 0 where all fit
  Nanoseconds makespan = 0;

  friend auto operator<=>(const PlacementScore&, const PlacementScore&) = default;
};

/// By the emulation.
PlacementScore score_of(const OpDag&, const Machine&, std::span<const std::uint32_t> on, const Emulation&);

struct ScoredPlacement {
  Placement placement;
  OrderBy order = OrderBy::fifo;
  PlacementScore score;
};

/// The best of the orders that need no search: fifo, b_level, by number, and the placement's own if it has one.
ScoredPlacement best_ordered(const OpDag&, const Machine&, Placement);

/// A placement in an order, with the bytes of the fullest processor.
struct FrontPlacement {
  Placement placement;
  OrderBy order = OrderBy::fifo;
  std::int64_t bytes = 0;
  Nanoseconds makespan = 0;
};

/// Of all placements of the units in the orders that need no search, if they are no more than `most` placements, those
/// that no other one beats in time and bytes; ascending by bytes. Else none.
std::vector<FrontPlacement> placement_front(const OpDag&, const Machine&, const Units&, std::size_t most);

using JudgePlacement = std::function<PlacementScore(std::span<const std::uint32_t> on, const Emulation&)>;

/// Moves, one at a time, each kept if the score improves: a unit that the last op waits for, or one on the fullest
/// processor, to where what it reads or its readers are, or to any other one; and runs of such units. At most
/// `evaluations` emulations that are judged, from a seed.
ScoredPlacement improved(const OpDag&, const Machine&, const Units&, ScoredPlacement, const JudgePlacement&,
                         std::size_t evaluations, std::uint64_t seed);

}  // namespace plimsoll
