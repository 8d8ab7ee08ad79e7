#pragma once
// Devices of a platform that are alike: what takes a time on one of them takes it on all.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/platform.h"

namespace plimsoll {

bool have_same_rates(const Device&, const Device&);

struct DeviceClasses {
  std::vector<DeviceId> one;       ///< by class: the first of its devices
  std::vector<std::size_t> count;  ///< by class
  std::vector<std::uint32_t> of;   ///< by device: its class
};

/// Of the platform's first devices.
DeviceClasses device_classes(const Platform&, std::size_t devices);

}  // namespace plimsoll
