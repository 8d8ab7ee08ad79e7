#pragma once
// Searches among placements: a local one, and one of all placements of a small graph.

#include <cstdint>
#include <functional>
#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"

namespace plimsoll {

// Local search of placements: units move where that makes the emulated iteration shorter, or less too full.

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

// All placements of a small graph, in all orders in which ops start as soon as they may: those that no other beats in
// time and bytes.

/// A placement with its order, and the bytes of the fullest processor.
struct FrontPlacement {
  Placement placement;
  std::int64_t bytes = 0;
  Nanoseconds makespan = 0;
};

struct PlacementFront {
  std::vector<FrontPlacement> placements;  ///< ascending by bytes, descending by time
  bool is_complete = false;                ///< no order of any placement was left out
};

/// What the emulation of all placements of the units gives, if they are no more than `most_placements`; else none. Each
/// placement in the orders that need no search, then in all others as long as no more than `most_steps` partial orders
/// have been looked at. Where processors and the routes between them are all alike, one placement stands for those
/// that only change their names.
PlacementFront placement_front(const OpDag&, const Machine&, const Units&, std::size_t most_placements,
                               std::size_t most_steps);

/// A placement in an order of its own, by emulation.
struct NearPlacement {
  Placement placement;
  Nanoseconds makespan = 0;
};

/// Of the same placements in all orders, those of which `is_beaten` says no of their bytes and their makespan, the
/// shortest first. `is_beaten` says no of fewer bytes or a shorter makespan where it does of more. At most `most` are
/// found, and at most `most_steps` partial orders looked at.
std::vector<NearPlacement> near_placements(const OpDag&, const Machine&, const Units&, std::size_t most_placements,
                                           std::size_t most_steps, std::size_t most,
                                           const std::function<bool(std::int64_t, Nanoseconds)>& is_beaten);

}  // namespace plimsoll
