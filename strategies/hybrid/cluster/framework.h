#pragma once
// What frameworks can run of a cluster's points.

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
};
std::span<const ClusterFramework> cluster_frameworks();

/// Null for `any`.
const ClusterFramework* cluster_framework(std::string_view name);

/// What every launcher needs: as many processes on each node.
struct Processes {
  std::uint32_t nodes, on_each;
};
std::optional<Processes> cluster_processes(const ClusterExtent&, const ClusterPoint&);

/// As torchtitan names a pipeline's schedule; torch.distributed.pipelining has `Schedule` in front.
std::string_view pytorch_schedule(const ClusterPoint&);

/// Layers of a part by which torchtitan comes to so many of them; nothing where it comes to them by itself.
struct LayersPerStage {
  bool is_possible = true;
  std::optional<std::uint32_t> layers = {};
};
LayersPerStage torchtitan_layers(const ClusterExtent&, const ClusterPoint&);

}  // namespace plimsoll
