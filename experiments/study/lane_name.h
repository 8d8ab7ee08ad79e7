#pragma once
// What a stream is called in pictures: by what it does for its device.

#include <string>

#include "sim/core/platform.h"

namespace plimsoll {

/// `compute`, `host` (what computes there), `device_to_host`, ...; memories that are neither by their names.
std::string lane_name(Way, const Platform&);

}  // namespace plimsoll
