#pragma once
// Static memory planning: buffers with known sizes and lifetimes get offsets in one block of memory, such that none
// overlap in both time and space and the block is small.

#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// A buffer that is live from `begin` on, up to but without `end`; of equal ones, never.
struct Lifetime {
  Bytes size;
  std::uint32_t begin = 0, end = 0;
};

struct OffsetPlan {
  std::vector<Bytes> offsets;  ///< by buffer
  Bytes size;                  ///< the largest end
  Bytes load;                  ///< most bytes that are live at once: no plan is smaller
  bool is_optimal = false;     ///< proven: by the load, or because all orders were tried or nothing smaller is possible
};

/// Most bytes that are live at once.
Bytes greatest_load(std::span<const Lifetime>);

/// Up to so many buffers all plans are tried.
inline constexpr std::size_t exact_offsets_up_to = 10;

/// How long a smaller plan than the greedy ones is searched (sim/memory/exact_packing.h).
struct OffsetSearch {
  std::size_t most_buffers = 500;  ///< with more there is no search
  std::int64_t nodes = 5'000;      ///< within each size that is tried
};

/// Buffers one after the other, each into the smallest gap between those that live at the same time (the lowest of
/// equal ones; above all where none fits), in several orders, of which the best is taken: by size, by size times
/// lifetime, by lifetime, and as they begin; of more than 20,000 buffers by size only. Source of the rule: Pisarchyk
/// and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5 (greedy by size). Up to
/// `exact_offsets_up_to` buffers the plan is optimal. Above, plans are searched within the load, then within sizes that
/// halve the distance between the largest without and the least with one.
OffsetPlan assign_offsets(std::span<const Lifetime>, OffsetSearch = {});

}  // namespace plimsoll
