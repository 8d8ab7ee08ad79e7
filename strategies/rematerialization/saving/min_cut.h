#pragma once
// The strategy `min_cut`: PyTorch's min-cut partitioner (saved_values.h) on the op graph.

#include "strategies/api/strategy.h"
#include "strategies/rematerialization/saving/saved_values.h"

namespace plimsoll {

/// Whether an op of this kind is a matrix product, a convolution or attention, which PyTorch does not recompute.
bool is_compute_intensive(std::string_view kind);

/// Those that is_compute_intensive() names, and banned_anyway().
Banned banned_with_compute(const PartTask&, const OpModel&);

}  // namespace plimsoll
