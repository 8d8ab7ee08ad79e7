#pragma once
// Signs of what ReLUs have made, from what batch norms keep for their own backward: a batch norm, an addition of two
// and a ReLU run again right before the ReLU's gradient, so that nothing has to wait for it.

#include <span>

#include "strategies/compression/packing.h"

namespace plimsoll {

/// Before which positions which ops run again. A ReLU's chain of ops does if it begins with batch norms alone whose
/// inputs wait as they are until later; the signs of other ReLUs must be kept.
Reruns signs_anew(const Graph&, std::span<const SavedTensor>, const CodecChoice&);

}  // namespace plimsoll
