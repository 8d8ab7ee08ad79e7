#pragma once
// How long collectives over the axes of meshes take where nothing else is on their links, in closed form.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/mesh/nccl_times.h"

namespace plimsoll {

/// The fastest of these ways, for n ranks, B bytes of the whole value, and the latency L and bandwidth W of the hop of
/// a step that takes longest while all groups of these axes, of all meshes on the platform, exchange at the same time:
///  - ring, of neighbours along an axis or in the order of ranks over several: (n-1) (L + B / n / W); an all_reduce
///    takes that twice. A broadcast hands a share to each rank, one after the other, which then go around. An
///    all_to_all hands a share to the rank k further on, k = 1 to n-1; beyond 64 ranks each is taken to have the
///    slowest hop of the ring and of halves. All kinds.
///  - halving (and doubling), where n is a power of two: partners at a distance of n/2, n/4, ... exchange half of what
///    is left, sum over k of (L_k + B / 2^k / W_k); an all_reduce twice that. all_reduce, reduce_scatter, all_gather.
///  - trees, two binary ones: 2 (log2(n) L + B / W), pieces following each other. all_reduce and broadcast.
///  - levels, where each group has as many ranks in each of several nodes: within nodes, and on the shares of that
///    between nodes, each the fastest of the others. all_reduce; reduce_scatter and all_gather where they are asked
///    for, since libraries such as NCCL have no levels for these.
///  - nccl: as NCCL does, by measured times (nccl_times.h) where the devices have them for this, else by ring.
/// `fastest` leaves nccl out. Where all of a group's axes ask for one way, that one for the kinds and groups that it
/// can do. Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
/// 2005; Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
class CollectiveTimes {
 public:
  /// Meshes on devices [0, ranks), [ranks, 2 ranks), ...; or in one sentence why there is no ring, or why all axes that
  /// ask for a way together cannot go it.
  static std::variant<CollectiveTimes, std::string> on(const Platform&, Mesh);

  /// `bytes`: of the whole value. all_reduce and broadcast: what every rank ends with; reduce_scatter: what every rank
  /// begins with; all_gather: what every rank ends with; all_to_all and shift: what every rank has. In groups over
  /// these axes (ascending); 0 s for groups of one rank.
  Seconds seconds(CollectiveKind, Bytes, std::span<const std::uint32_t> axes);

  /// For each axis whose neighbours are not all as far apart: in one sentence that its slowest links set the pace.
  std::vector<std::string> unequal_axes() const;

 private:
  struct Hop {
    Seconds latency;
    BytesPerSecond bandwidth;
    friend bool operator==(const Hop&, const Hop&) = default;
  };
  /// Hops that are used at the same time.
  struct Hops {
    std::vector<Hop> different;
    BytesPerSecond slowest = unlimited_bandwidth, fastest{0};  ///< of a hop that has its links for itself
    /// Of the one that takes longest: for so many bytes, with so many latencies.
    double seconds(double bytes, double latencies = 1) const;
  };
  /// Equal groups that exchange at the same time.
  struct Groups {
    std::uint32_t ranks = 1;
    Hops ring;
    std::vector<Hops> halves;      ///< to partners at a distance of ranks / 2, ..., 1; empty unless a power of two
    std::vector<Hops> from_first;  ///< to each other rank by itself, once asked
    std::vector<Hops> further_on;  ///< from each rank to the one 1, 2, ... further on, once asked; of up to 64 ranks
    Seconds seconds(CollectiveKind, double bytes, CollectiveWay = CollectiveWay::fastest) const;
    double ring_seconds(CollectiveKind, double bytes) const;
  };
  struct Ways {
    Groups all;
    std::optional<Groups> within, between;  ///< nodes
    NcclGroup nccl;
    Seconds seconds(CollectiveKind, double bytes, CollectiveWay) const;
  };
  using Members = std::vector<std::vector<std::uint32_t>>;  // devices of each group, in the order of ranks

  CollectiveTimes(const Platform& platform, Mesh mesh)
      : platform_(&platform),
        finder_(std::make_unique<RouteFinder>(platform)),
        measured_(platform.devices.front().efficiency),
        mesh_(std::move(mesh)) {}
  Members members(std::span<const std::uint32_t> axes) const;
  using Ends = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  std::variant<Hops, std::string> hops(Ends);
  std::variant<Groups, std::string> groups(const Members&);
  NcclGroup nccl_group(const Members&);
  void add_hops_for(CollectiveKind, std::span<const std::uint32_t> axes, Groups&);
  std::variant<Ways, std::string> ways(std::span<const std::uint32_t> axes);
  std::optional<std::string> cannot_go();
  CollectiveWay asked_way(std::span<const std::uint32_t> axes) const;

  const Platform* platform_;
  std::unique_ptr<RouteFinder> finder_;
  std::shared_ptr<const KernelTimes> measured_;  ///< of the devices; none: by the platform's links alone
  Mesh mesh_;
  std::map<std::vector<std::uint32_t>, Ways> ways_;
  std::map<Ends, Hops> hops_;  // of hops in ascending order: groups over several axes halve along each of them
};

/// Gives collectives of the graph that have none their durations.
void set_collective_seconds(Graph&, const Mesh&, CollectiveTimes&);

}  // namespace plimsoll
