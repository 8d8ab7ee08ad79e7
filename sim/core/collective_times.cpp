#include "sim/core/collective_times.h"

#include <algorithm>
#include <map>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// How many of the hops use each direction of a link; of a link that is half-duplex, both together.
class LinkShares {
 public:
  explicit LinkShares(const Platform& platform) : platform_(platform), uses_(2 * platform.links.size(), 0) {}

  void add(const Route& route) {
    for (const LinkUse& use : route.links) ++uses_[place(use)];
  }
  /// Of one of the hops while all of them exchange.
  BytesPerSecond bandwidth(const Route& route) const {
    double least = route.bandwidth.value;
    for (const LinkUse& use : route.links) {
      least = std::min(least, platform_[use.link].bandwidth.value / static_cast<double>(uses_[place(use)]));
    }
    return {least};
  }

 private:
  std::size_t place(const LinkUse& use) const {
    return 2 * std::size_t{use.link.index} + (use.down && platform_[use.link].full_duplex ? 1 : 0);
  }
  const Platform& platform_;
  std::vector<std::uint32_t> uses_;
};

}  // namespace

std::variant<CollectiveTimes, std::string> CollectiveTimes::on(const Platform& platform, const Mesh& mesh) {
  RouteFinder finder(platform);
  const std::size_t used = platform.devices.size() / mesh.ranks() * mesh.ranks();
  CollectiveTimes made;
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    Ring& ring = made.rings_.emplace_back();
    ring.ranks = mesh.axes[a].ranks;
    if (ring.ranks == 1) continue;
    LinkShares shares(platform);
    std::vector<Route> hops;
    const std::size_t stride = mesh.stride(a);
    for (std::size_t d = 0; d < used; ++d) {
      const bool is_last = d / stride % ring.ranks == ring.ranks - 1;
      const std::size_t next = is_last ? d - (ring.ranks - 1) * stride : d + stride;
      std::optional<Route> hop = finder.between(platform.devices[d].memory, platform.devices[next].memory);
      if (!hop) {
        return "axis '" + mesh.axes[a].name + "': there is no way from '" + platform.devices[d].name + "' to '" +
               platform.devices[next].name + "'";
      }
      shares.add(*hop);
      hops.push_back(std::move(*hop));
    }
    for (const Route& hop : hops) {
      ring.latency = std::max(ring.latency, hop.latency);
      ring.bandwidth = std::min(ring.bandwidth, shares.bandwidth(hop));
    }
  }
  return made;
}

Seconds CollectiveTimes::seconds(CollectiveKind kind, Bytes bytes, std::size_t axis) const {
  const Ring& ring = rings_[axis];
  if (ring.ranks == 1) return {};
  const double steps = (kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast ? 2.0 : 1.0) *
                       (static_cast<double>(ring.ranks) - 1);
  const double part = static_cast<double>(bytes.count) / ring.ranks / ring.bandwidth.value;
  return Seconds{steps * (ring.latency.value + part)};
}

void set_collective_seconds(Graph& graph, const Mesh& mesh, const CollectiveTimes& times) {
  for (Op& op : graph.ops) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange || op.duration) continue;
    const std::optional<std::size_t> axis = mesh.axis(exchange->axis);
    EXPECTS(axis);
    op.duration = times.seconds(exchange->kind, exchanged_bytes(graph, op), *axis);
    op.flops = Flops{0};
    op.bytes_moved = Bytes{0};
  }
}

}  // namespace plimsoll
