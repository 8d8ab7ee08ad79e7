#pragma once
// Offsets of buffers within a given block of memory, by search.
//
// Buffers are placed by rising offset, each as low as those before it allow: one such order gives every plan that can
// be pushed down no further. Branches are cut off where
//  - at some date what lies there, the gap up to the next that can, and all that is still to come exceed the block;
//  - a buffer would lie where another one would fit below it;
//  - the same buffers were left over the same tops before, in vain.
// Buffers that no other one joins any more are searched apart, in an order made anew by what is still to come there.
// Several orders among equal choices take turns, each with more and more nodes: by length of life, most bytes at once
// and area, and others drawn by a fixed seed. Source: Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", 2023; what was in vain and drawn orders are our own.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

struct Lifetime;

enum class PackingEnd { found, impossible, cut_off };

struct BlockPacking {
  PackingEnd end = PackingEnd::cut_off;
  std::vector<Bytes> offsets;  ///< by buffer, where found
};

/// `nodes`: buffers placed in all, after which the search is cut off. All buffers must have a size and a life.
BlockPacking pack_within(std::span<const Lifetime>, Bytes block, std::int64_t nodes);

}  // namespace plimsoll
