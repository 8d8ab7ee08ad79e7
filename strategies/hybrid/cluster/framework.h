#pragma once
// What frameworks can run of a cluster's points, and how they are told to: in the options that each has published.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {

struct ClusterFramework {
  std::string_view name;   ///< for=
  std::string_view title;  ///< as its makers call it
  /// In words why it cannot run the point.
  std::optional<std::string> (*why_not)(const ClusterExtent&, const ClusterPoint&);
  /// Lines that make it run the point, each with its end: arguments, or a file. `sequence` as of composed().
  std::string (*configuration)(const ClusterExtent&, const ClusterPoint&, bool sequence);
};
std::span<const ClusterFramework> cluster_frameworks();

/// Null for `any`.
const ClusterFramework* cluster_framework(std::string_view name);

}  // namespace plimsoll
