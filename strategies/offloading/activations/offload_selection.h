#pragma once
// Which items to move: where the device would be fullest, the item that comes first by some rule, at each of
// some levels of memory.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/units.h"
#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {

/// Time between the end of a gap's first use and the start of its second that copies there and back would leave over.
Seconds free_time(const OffloadModel&, std::span<const Seconds> starts, const OffloadItem&);

enum class SelectionRule : std::uint8_t {
  free_time,          ///< most free time first
  bytes_per_exposed,  ///< most bytes for each second by which copies exceed the gap; larger ones first where they do
                      ///< not
  first_made,         ///< in the order in which they can leave
};

/// Items in the order of their selection; with the first k of them moved, peaks[k] is needed at least.
struct Selection {
  std::vector<OffloadItem> items;
  std::vector<Bytes> peaks;

  /// How many of them the budget takes; nothing if all are too few.
  std::optional<std::size_t> needed(Bytes budget) const;
};

/// `needed`: memory by position, where some items have been chosen before.
Selection select_items(const OffloadModel&, std::vector<OffloadItem>, SelectionRule, std::vector<Bytes> needed);
Selection select_items(const OffloadModel&, std::vector<OffloadItem>, SelectionRule);

/// Moves the values of the chosen gaps, in so many chunks; where they do not take enough, others with them, oldest
/// first.
std::optional<PlacedCopies> place_chosen(const OffloadModel&, const std::vector<bool>& chosen, std::uint32_t chunks,
                                         Bytes budget);

// Levels of memory at which plans are made for all budgets: evenly between what is needed at least and at most.

/// So many as are `wanted`; unset: 40, fewer for tapes of more than 600 positions, down to `fewest`.
std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::optional<std::int64_t> wanted, std::size_t positions,
                                 std::size_t fewest = 8);

}  // namespace plimsoll
