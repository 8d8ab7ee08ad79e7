#pragma once
// Which kind of layer an op belongs to, by its kind as PyTorch names it or as our networks do.

#include <cstdint>

#include "sim/core/graph.h"

namespace plimsoll {

/// Of an op, forward or backward; `stage` for those of chains.
SavedBy layer_of(const Op&);

/// Pixels of the longer side of the weight that the backward of a convolution reads or makes the gradient of; 0 where
/// there is none.
std::int64_t kernel_of(const Graph&, const Op&);

}  // namespace plimsoll
