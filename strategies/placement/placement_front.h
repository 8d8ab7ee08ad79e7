#pragma once
// All placements of a small graph, in all orders in which ops start as soon as they may: those that no other beats in
// time and bytes.

#include <cstdint>
#include <functional>
#include <vector>

#include "strategies/placement/placement_search.h"

namespace plimsoll {

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
