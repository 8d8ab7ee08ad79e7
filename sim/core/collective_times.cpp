#include "sim/core/collective_times.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

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

std::variant<CollectiveTimes, std::string> CollectiveTimes::on(const Platform& platform, Mesh mesh) {
  CollectiveTimes made(platform, std::move(mesh));
  for (std::uint32_t a = 0; a < made.mesh_.axes.size(); ++a) {
    std::variant<Ring, std::string> ring = made.ring_over(std::span(&a, 1));
    if (std::string* why = std::get_if<std::string>(&ring)) return std::move(*why);
    made.rings_[{a}] = std::get<Ring>(ring);
  }
  return made;
}

std::variant<CollectiveTimes::Ring, std::string> CollectiveTimes::ring_over(std::span<const std::uint32_t> axes) const {
  Ring ring;
  for (const std::uint32_t a : axes) ring.ranks *= mesh_.axes[a].ranks;
  if (ring.ranks == 1) return ring;
  RouteFinder finder(*platform_);
  LinkShares shares(*platform_);
  std::vector<Route> hops;
  const std::size_t used = platform_->devices.size() / mesh_.ranks() * mesh_.ranks();
  for (std::size_t d = 0; d < used; ++d) {
    std::size_t next = d;
    for (std::size_t k = axes.size(); k-- > 0;) {  // counts, the innermost axis fastest
      const std::size_t stride = mesh_.stride(axes[k]), ranks = mesh_.axes[axes[k]].ranks;
      const bool is_last = d / stride % ranks == ranks - 1;
      next = is_last ? next - (ranks - 1) * stride : next + stride;
      if (!is_last) break;
    }
    std::optional<Route> hop = finder.between(platform_->devices[d].memory, platform_->devices[next].memory);
    if (!hop) {
      return "axis '" + mesh_.names_of({axes.begin(), axes.end()}) + "': there is no way from '" +
             platform_->devices[d].name + "' to '" + platform_->devices[next].name + "'";
    }
    shares.add(*hop);
    hops.push_back(std::move(*hop));
  }
  for (const Route& hop : hops) {
    ring.latency = std::max(ring.latency, hop.latency);
    ring.bandwidth = std::min(ring.bandwidth, shares.bandwidth(hop));
    ring.slowest = std::min(ring.slowest, hop.bandwidth);
    ring.fastest = std::max(ring.fastest, hop.bandwidth);
  }
  return ring;
}

std::vector<std::string> CollectiveTimes::unequal_axes() const {
  std::vector<std::string> found;
  for (const auto& [axes, ring] : rings_) {
    if (axes.size() > 1 || ring.ranks == 1 || !(ring.slowest < ring.fastest)) continue;
    std::array<char, 32> ratio{};
    const auto written = std::to_chars(ratio.data(), ratio.data() + ratio.size(),
                                       ring.fastest.value / ring.slowest.value, std::chars_format::general, 3);
    found.push_back("axis '" + mesh_.names_of(axes) + "' goes over links of unequal bandwidth: the slowest of them, " +
                    std::string(ratio.data(), written.ptr) + " times slower than the fastest, set the pace");
  }
  return found;
}

Seconds CollectiveTimes::seconds(CollectiveKind kind, Bytes bytes, std::span<const std::uint32_t> axes) {
  const std::vector<std::uint32_t> group(axes.begin(), axes.end());
  auto found = rings_.find(group);
  if (found == rings_.end()) {
    const std::variant<Ring, std::string> made = ring_over(axes);
    EXPECTS(std::holds_alternative<Ring>(made));  // there are ways along each of the axes
    found = rings_.try_emplace(group, std::get<Ring>(made)).first;
  }
  const Ring& ring = found->second;
  if (ring.ranks == 1) return {};
  const double steps = (kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast ? 2.0 : 1.0) *
                       (static_cast<double>(ring.ranks) - 1);
  const double part = static_cast<double>(bytes.count) / ring.ranks / ring.bandwidth.value;
  return Seconds{steps * (ring.latency.value + part)};
}

void set_collective_seconds(Graph& graph, const Mesh& mesh, CollectiveTimes& times) {
  for (Op& op : graph.ops) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange || op.duration) continue;
    std::vector<std::uint32_t> axes;
    for (const std::size_t a : mesh.axes_named(exchange->axis)) axes.push_back(static_cast<std::uint32_t>(a));
    EXPECTS(!axes.empty());
    op.duration = times.seconds(exchange->kind, exchanged_bytes(graph, op), axes);
    op.flops = Flops{0};
    op.bytes_moved = Bytes{0};
  }
}

}  // namespace plimsoll
