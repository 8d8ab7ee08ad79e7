#pragma once
// A GPU without measured efficiencies takes those of the nearest one that has been measured.

#include <memory>

#include "sim/core/platform.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {

/// What platforms write for it instead of a file's name.
inline constexpr const char* nearest_word = "nearest";

/// Of the shipped tables that of the same model. Else of those with products in 16 bits that of the same generation,
/// else any, whose peak in 16 bits is nearest to the device's, in relation to the memory's bandwidth. Nothing where the
/// device has no bandwidth, or no peak in 16 bits and no table of its model.
std::shared_ptr<const Efficiency> nearest_efficiency(const Device&);

/// As they are used on a device. Measured on another model, their spreads are as wide at least as those of kernels that
/// were timed by another GPU's efficiencies (platforms/borrowed).
std::shared_ptr<const Efficiency> lent_to(const Device&, std::shared_ptr<const Efficiency>);

}  // namespace plimsoll
