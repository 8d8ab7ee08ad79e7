#pragma once
// Chains cut into segments that are each kept, or recomputed together from their first input when their backward comes:
// what PyTorch's checkpoint() does to the regions it wraps.

#include <cstddef>
#include <vector>

#include "strategies/models/chain_sequence.h"

namespace plimsoll {

/// Stages [first, end).
struct Segment {
  std::size_t first, end;
  bool recomputed;
  friend constexpr bool operator==(Segment, Segment) = default;
};

/// The segments must follow each other from stage 0 on. A recomputed segment's forwards keep its first input only.
ChainSequence segments_sequence(const std::vector<Segment>&);

/// One segment a stage.
std::vector<Segment> segment_each(const std::vector<bool>& recomputed);

/// Segments of `size` stages, all recomputed but the last one, which is needed at once; the loss is part of that.
std::vector<Segment> segments_of(std::size_t stages, std::size_t size);

}  // namespace plimsoll
