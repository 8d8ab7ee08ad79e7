#include "sim/core/collective_times.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
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
    std::variant<Ways, std::string> ways = made.ways(std::span(&a, 1));
    if (const std::string* why = std::get_if<std::string>(&ways)) {
      return "axis '" + made.mesh_.axes[a].name + "': " + *why;
    }
    made.ways_[{a}] = std::get<Ways>(std::move(ways));
  }
  return made;
}

CollectiveTimes::Members CollectiveTimes::members(std::span<const std::uint32_t> axes) const {
  const std::size_t used = platform_->devices.size() / mesh_.ranks() * mesh_.ranks();
  std::map<std::size_t, std::vector<std::uint32_t>> by_first;
  for (std::uint32_t d = 0; d < used; ++d) {
    std::size_t first = d;
    for (const std::uint32_t a : axes) first -= d / mesh_.stride(a) % mesh_.axes[a].ranks * mesh_.stride(a);
    by_first[first].push_back(d);
  }
  Members groups;
  for (auto& [first, group] : by_first) groups.push_back(std::move(group));
  return groups;
}

std::variant<CollectiveTimes::Hops, std::string> CollectiveTimes::hops(
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ends) const {
  LinkShares shares(*platform_);
  std::vector<Route> routes;
  for (const auto& [from, to] : ends) {
    std::optional<Route> route = finder_->between(platform_->devices[from].memory, platform_->devices[to].memory);
    if (!route) {
      return "there is no way from '" + platform_->devices[from].name + "' to '" + platform_->devices[to].name + "'";
    }
    shares.add(*route);
    routes.push_back(std::move(*route));
  }
  Hops made;
  for (const Route& route : routes) {
    made.latency = std::max(made.latency, route.latency);
    made.bandwidth = std::min(made.bandwidth, shares.bandwidth(route));
    made.slowest = std::min(made.slowest, route.bandwidth);
    made.fastest = std::max(made.fastest, route.bandwidth);
  }
  return made;
}

std::variant<CollectiveTimes::Groups, std::string> CollectiveTimes::groups(const Members& members) const {
  Groups made;
  made.ranks = static_cast<std::uint32_t>(members.front().size());
  if (made.ranks == 1) return made;
  using Ends = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  Ends around;
  for (const auto& group : members) {
    for (std::size_t r = 0; r < group.size(); ++r) around.emplace_back(group[r], group[(r + 1) % group.size()]);
  }
  std::variant<Hops, std::string> ring = hops(around);
  if (std::string* why = std::get_if<std::string>(&ring)) return std::move(*why);
  made.ring = std::get<Hops>(ring);
  if (!std::has_single_bit(made.ranks)) return made;
  for (std::size_t distance = made.ranks / 2; distance > 0; distance /= 2) {
    Ends partners;
    for (const auto& group : members) {
      for (std::size_t r = 0; r < group.size(); ++r) partners.emplace_back(group[r], group[r ^ distance]);
    }
    std::variant<Hops, std::string> half = hops(partners);
    if (std::string* why = std::get_if<std::string>(&half)) return std::move(*why);
    made.halves.push_back(std::get<Hops>(half));
  }
  return made;
}

std::variant<CollectiveTimes::Ways, std::string> CollectiveTimes::ways(std::span<const std::uint32_t> axes) const {
  const Members all = members(axes);
  Members within, between;
  bool is_even = true;
  for (const auto& group : all) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_node;
    for (const std::uint32_t d : group) by_node[platform_->devices[d].node].push_back(d);
    const std::size_t each = by_node.begin()->second.size();
    for (const auto& [node, devices] : by_node) is_even = is_even && devices.size() == each;
    is_even = is_even && each > 1 && by_node.size() > 1;
    if (!is_even) break;
    for (std::size_t k = 0; k < each; ++k) {
      between.emplace_back();
      for (const auto& [node, devices] : by_node) between.back().push_back(devices[k]);
    }
    for (auto& [node, devices] : by_node) within.push_back(std::move(devices));
  }
  Ways made;
  const auto take = [&](const Members& members) -> std::optional<std::string> {
    std::variant<Groups, std::string> groups = this->groups(members);
    if (std::string* why = std::get_if<std::string>(&groups)) return std::move(*why);
    if (&members == &all) made.all = std::get<Groups>(std::move(groups));
    if (&members == &within) made.within = std::get<Groups>(std::move(groups));
    if (&members == &between) made.between = std::get<Groups>(std::move(groups));
    return std::nullopt;
  };
  if (std::optional<std::string> why = take(all)) return std::move(*why);
  if (!is_even) return made;
  for (const Members* some : {&within, &between}) {
    if (std::optional<std::string> why = take(*some)) return std::move(*why);
  }
  return made;
}

std::vector<std::string> CollectiveTimes::unequal_axes() const {
  std::vector<std::string> found;
  for (const auto& [axes, ways] : ways_) {
    const Hops& ring = ways.all.ring;
    if (axes.size() > 1 || ways.all.ranks == 1 || !(ring.slowest < ring.fastest)) continue;
    std::array<char, 32> ratio{};
    const auto written = std::to_chars(ratio.data(), ratio.data() + ratio.size(),
                                       ring.fastest.value / ring.slowest.value, std::chars_format::general, 3);
    found.push_back("axis '" + mesh_.names_of(axes) + "' goes over links of unequal bandwidth: the slowest of them, " +
                    std::string(ratio.data(), written.ptr) + " times slower than the fastest, set the pace");
  }
  return found;
}

/// By ring, halving and doubling, or trees.
Seconds CollectiveTimes::Groups::seconds(CollectiveKind kind, double bytes) const {
  if (ranks == 1) return {};
  const bool twice = kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast;
  const double rounds = twice ? 2.0 : 1.0, n = ranks;
  double least = rounds * (n - 1) * (ring.latency.value + bytes / n / ring.bandwidth.value);
  if (twice) least = std::min(least, 2 * (std::ceil(std::log2(n)) * ring.latency.value + bytes / ring.bandwidth.value));
  const bool halves_it = kind != CollectiveKind::all_to_all && kind != CollectiveKind::broadcast;
  if (halves_it && !halves.empty()) {
    double sum = 0, part = bytes;
    for (const Hops& half : halves) {
      part /= 2;
      sum += half.latency.value + part / half.bandwidth.value;
    }
    least = std::min(least, rounds * sum);
  }
  return Seconds{least};
}

Seconds CollectiveTimes::seconds(CollectiveKind kind, Bytes bytes, std::span<const std::uint32_t> axes) {
  const std::vector<std::uint32_t> group(axes.begin(), axes.end());
  auto found = ways_.find(group);
  if (found == ways_.end()) {
    std::variant<Ways, std::string> made = ways(axes);
    EXPECTS(std::holds_alternative<Ways>(made));  // there are ways along each of the axes
    found = ways_.try_emplace(group, std::get<Ways>(std::move(made))).first;
  }
  const Ways& by = found->second;
  const auto whole = static_cast<double>(bytes.count);
  const Seconds flat = by.all.seconds(kind, whole);
  const bool is_exchange = kind == CollectiveKind::all_to_all || kind == CollectiveKind::broadcast;
  if (!by.within || is_exchange) return flat;
  using enum CollectiveKind;
  const double share = whole / by.within->ranks;
  Seconds levels = by.between->seconds(kind, share);
  levels += kind == all_reduce ? by.within->seconds(reduce_scatter, whole) + by.within->seconds(all_gather, whole)
                               : by.within->seconds(kind, whole);
  return std::min(flat, levels);
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
