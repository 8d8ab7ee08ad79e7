#pragma once
// How long collectives over the axes of meshes take where nothing else is on their links, in closed form.

#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// Collectives by rings of neighbours, along an axis or in the order of ranks over several: n ranks pass on parts of
/// 1/n of the bytes, n-1 times (all_reduce: 2(n-1) times). All groups of these axes, of all meshes on the platform,
/// exchange at the same time and share links; a step takes what its slowest hop does:
///
///     seconds = steps * (latency + bytes / n / bandwidth)
///
/// With all_to_all the parts for others go straight to them: n-1 steps of 1/n of what a rank has, at the same rate.
class CollectiveTimes {
 public:
  /// Meshes on devices [0, ranks), [ranks, 2 ranks), ...; or in one sentence why there is no ring.
  static std::variant<CollectiveTimes, std::string> on(const Platform&, Mesh);

  /// `bytes`: of the whole value. all_reduce and broadcast: what every rank ends with; reduce_scatter: what every rank
  /// begins with; all_gather: what every rank ends with; all_to_all: what every rank has. In groups over these axes
  /// (ascending); 0 s for groups of one rank.
  Seconds seconds(CollectiveKind, Bytes, std::span<const std::uint32_t> axes);

  /// For each axis whose neighbours are not all as far apart: in one sentence that its slowest links set the pace.
  std::vector<std::string> unequal_axes() const;

 private:
  /// Of the slowest hop.
  struct Ring {
    std::uint32_t ranks = 1;
    Seconds latency;
    BytesPerSecond bandwidth = unlimited_bandwidth;
    BytesPerSecond slowest = unlimited_bandwidth, fastest{0};  ///< of a hop that has its links for itself
  };

  CollectiveTimes(const Platform& platform, Mesh mesh) : platform_(&platform), mesh_(std::move(mesh)) {}
  std::variant<Ring, std::string> ring_over(std::span<const std::uint32_t> axes) const;

  const Platform* platform_;
  Mesh mesh_;
  std::map<std::vector<std::uint32_t>, Ring> rings_;
};

/// Gives collectives of the graph that have none their durations.
void set_collective_seconds(Graph&, const Mesh&, CollectiveTimes&);

}  // namespace plimsoll
