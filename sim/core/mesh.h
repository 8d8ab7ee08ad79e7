#pragma once
// Ranks that run the same graph on their shares of its tensors, as a grid with named axes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

struct Axis {
  std::string name;  ///< `data`, `tensor`, ...
  std::uint32_t ranks = 1;

  friend bool operator==(const Axis&, const Axis&) = default;
};

/// The ranks of one pipeline stage. Along the last axis neighbours are neighbouring devices; stage s has the devices
/// [s * ranks(), (s + 1) * ranks()) of the platform.
struct Mesh {
  std::vector<Axis> axes;

  std::uint32_t ranks() const {
    std::uint32_t all = 1;
    for (const Axis& axis : axes) all *= axis.ranks;
    return all;
  }
  /// From a rank to the next one along the axis, in devices.
  std::uint32_t stride(std::size_t axis) const {
    std::uint32_t between = 1;
    for (std::size_t a = axis + 1; a < axes.size(); ++a) between *= axes[a].ranks;
    return between;
  }

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace plimsoll
