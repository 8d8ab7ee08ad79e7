#pragma once
// The strategy `full_recompute`: layers are recomputed from their input, as Megatron's recompute granularity "full".

#include "strategies/api/strategy.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {

enum class RecomputeMethod : std::uint8_t {
  uniform,  ///< all layers, in groups of `layers` that are recomputed together
  block,    ///< the first `layers` layers, each on its own; the others keep everything
};

/// The layers are the stages but the last, which is the loss.
std::vector<Segment> full_recompute_segments(std::size_t stages, RecomputeMethod, std::size_t layers);

}  // namespace plimsoll
