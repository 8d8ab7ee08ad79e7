#pragma once
// Rules by layer that frameworks have: which layers are recomputed.

#include <string>

#include "strategies/api/strategy.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {

// The strategy `full_recompute`: layers are recomputed from their input, as Megatron's recompute granularity "full".

enum class RecomputeMethod : std::uint8_t {
  uniform,  ///< all layers, in groups of `layers` that are recomputed together
  block,    ///< the first `layers` layers, each on its own; the others keep everything
};

/// The layers are the stages but the last, which is the loss.
std::vector<Segment> full_recompute_segments(std::size_t stages, RecomputeMethod, std::size_t layers);

// The strategy `selective`: a policy for each layer says whether it is recomputed or kept, as PyTorch and Megatron
// users write them: by name, every k-th recomputed, or every k-th kept.

/// Whether a stage's name, or one of its parts between dots, matches one of the patterns, which are joined by '+' and
/// may contain `*` (any text) and `?` (any character).
bool matches(std::string_view patterns, std::string_view name);

/// One policy; unset: of no effect.
struct SelectivePolicy {
  std::optional<std::size_t> recompute_every, keep_every;
};

/// Which stages are recomputed, one by one. The last stage, the loss, never is.
std::vector<bool> selected(const std::vector<std::string>& names, std::string_view patterns, const SelectivePolicy&);

}  // namespace plimsoll
