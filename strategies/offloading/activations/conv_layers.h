#pragma once
// Which positions of a tape are the heavy layers that offloading for convolutional networks singles out.

#include <vector>

#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// Ops that convolve or multiply matrices, and backwards that read the parameters of such. In a chain: stages with
/// "conv" in their names, or all but the loss where no stage has.
std::vector<bool> conv_positions(const PartTask&, const OffloadModel&);

}  // namespace plimsoll
