#pragma once
// Ranks that run the same graph on their shares of its tensors, as a grid with named axes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// How ranks exchange values (sim/mesh/collective_times.h).
enum class CollectiveWay : std::uint8_t { fastest, nccl, ring, halving, trees, levels };

struct Axis {
  std::string name;  ///< `data`, `tensor`, ...
  std::uint32_t ranks = 1;
  bool shares_micro_batches = false;  ///< each rank has its own micro-batches; else all work on the same ones
  CollectiveWay way = CollectiveWay::fastest;
  bool scatters = false;  ///< each rank sends its share of a value to the next pipeline stage, whose ranks gather it

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

  /// Index in axes.
  std::optional<std::size_t> axis(std::string_view name) const {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (axes[a].name == name) return a;
    }
    return std::nullopt;
  }
  /// Of several axes, `name+name`; empty where the mesh lacks one of them.
  std::vector<std::size_t> axes_named(std::string_view names) const {
    std::vector<std::size_t> found;
    while (!names.empty()) {
      const std::size_t end = std::min(names.find('+'), names.size());
      const std::optional<std::size_t> one = axis(names.substr(0, end));
      if (!one) return {};
      found.push_back(*one);
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    return found;
  }
  /// `name+name` of these.
  std::string names_of(const std::vector<std::uint32_t>& some) const {
    std::string names;
    for (const std::uint32_t a : some) names += (names.empty() ? "" : "+") + axes[a].name;
    return names;
  }

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace plimsoll
