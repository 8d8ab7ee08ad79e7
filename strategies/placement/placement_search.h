#pragma once
// Local search of placements: units move where that makes the emulated iteration shorter, or less too full.

#include <cstdint>
#include <functional>
#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"

namespace plimsoll {

inline constexpr QueueOrder orders_without_search[] = {QueueOrder::fifo, QueueOrder::b_level, QueueOrder::number};

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
  QueueOrder order = QueueOrder::fifo;  ///< where the placement has no order of its own
  PlacementScore score;
};

Emulation emulate(const OpDag&, const Machine&, const ScoredPlacement&);

/// The best of the orders that need no search: fifo, b_level, by number, and the placement's own if it has one.
ScoredPlacement best_ordered(const OpDag&, const Machine&, Placement);

using JudgePlacement = std::function<PlacementScore(std::span<const std::uint32_t> on, const Emulation&)>;

/// Moves, one at a time, each kept if the score improves: a unit that the last op waits for, or one on the fullest
/// processor, to where what it reads or its readers are, or to any other one; and runs of such units. At most
/// `evaluations` emulations that are judged, from a seed.
ScoredPlacement improved(const OpDag&, const Machine&, const Units&, ScoredPlacement, const JudgePlacement&,
                         std::size_t evaluations, std::uint64_t seed);

}  // namespace plimsoll
