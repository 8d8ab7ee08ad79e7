#include "sim/mesh/collective_times.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
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
      least =
          std::min(least, bandwidth_of(platform_[use.link], use.down).value / static_cast<double>(uses_[place(use)]));
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
  if (std::optional<std::string> why = made.cannot_go()) return std::move(*why);
  return made;
}

std::optional<std::string> CollectiveTimes::cannot_go() {
  for (const CollectiveWay way : {CollectiveWay::halving, CollectiveWay::levels}) {
    std::vector<std::uint32_t> axes;
    std::uint32_t ranks = 1;
    for (std::uint32_t a = 0; a < mesh_.axes.size(); ++a) {
      if (mesh_.axes[a].way != way) continue;
      axes.push_back(a);
      ranks *= mesh_.axes[a].ranks;
    }
    if (ranks == 1) continue;
    const std::string axis = "axis '" + mesh_.names_of(axes) + "': ";
    if (way == CollectiveWay::halving && !std::has_single_bit(ranks)) {
      return axis + std::to_string(ranks) + " ranks cannot be halved again and again; " +
             std::to_string(std::bit_floor(ranks)) + " or " + std::to_string(std::bit_ceil(ranks)) + " can";
    }
    if (way == CollectiveWay::levels && !std::get<Ways>(ways(axes)).within) {
      return axis + "collectives have no levels, as each group would need several ranks in each of several nodes";
    }
  }
  return std::nullopt;
}

/// What all of the axes ask for.
CollectiveWay CollectiveTimes::asked_way(std::span<const std::uint32_t> axes) const {
  const CollectiveWay first = mesh_.axes[axes.front()].way;
  const auto agrees = [&](std::uint32_t axis) { return mesh_.axes[axis].way == first; };
  return std::ranges::all_of(axes, agrees) ? first : CollectiveWay::fastest;
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

std::variant<CollectiveTimes::Hops, std::string> CollectiveTimes::hops(Ends ends) {
  std::ranges::sort(ends);
  if (const auto known = hops_.find(ends); known != hops_.end()) return known->second;
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
    const Hop hop{route.latency, shares.bandwidth(route)};
    if (std::ranges::find(made.different, hop) == made.different.end()) made.different.push_back(hop);
    made.slowest = std::min(made.slowest, route.bandwidth);
    made.fastest = std::max(made.fastest, route.bandwidth);
  }
  return hops_.try_emplace(std::move(ends), made).first->second;
}

std::variant<CollectiveTimes::Groups, std::string> CollectiveTimes::groups(const Members& members) {
  Groups made;
  made.ranks = static_cast<std::uint32_t>(members.front().size());
  if (made.ranks == 1) return made;
  Ends around;
  for (const auto& group : members) {
    for (std::size_t r = 0; r < group.size(); ++r) around.emplace_back(group[r], group[(r + 1) % group.size()]);
  }
  std::variant<Hops, std::string> ring = hops(std::move(around));
  if (std::string* why = std::get_if<std::string>(&ring)) return std::move(*why);
  made.ring = std::get<Hops>(ring);
  if (!std::has_single_bit(made.ranks)) return made;
  for (std::size_t distance = made.ranks / 2; distance > 0; distance /= 2) {
    Ends partners;
    for (const auto& group : members) {
      for (std::size_t r = 0; r < group.size(); ++r) partners.emplace_back(group[r], group[r ^ distance]);
    }
    std::variant<Hops, std::string> half = hops(std::move(partners));
    if (std::string* why = std::get_if<std::string>(&half)) return std::move(*why);
    made.halves.push_back(std::get<Hops>(half));
  }
  return made;
}

/// Nothing of it is used without measured times.
NcclGroup CollectiveTimes::nccl_group(const Members& members) {
  NcclGroup made{.ranks = static_cast<std::uint32_t>(members.front().size())};
  if (!measured_ || made.ranks == 1) return made;
  Ends in_node, across;
  std::size_t fewest = made.ranks;
  for (const auto& group : members) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_node;
    for (const std::uint32_t d : group) by_node[platform_->devices[d].node].push_back(d);
    made.nodes = std::max(made.nodes, static_cast<std::uint32_t>(by_node.size()));
    for (auto node = by_node.begin(); node != by_node.end(); ++node) {
      const std::vector<std::uint32_t>& here = node->second;
      made.in_node = std::max(made.in_node, static_cast<std::uint32_t>(here.size()));
      for (std::size_t k = 0; k + 1 < here.size(); ++k) in_node.emplace_back(here[k], here[k + 1]);
      if (by_node.size() == 1) continue;
      fewest = std::min(fewest, here.size());
      const auto next = std::next(node) == by_node.end() ? by_node.begin() : std::next(node);
      for (std::size_t k = 0; k < here.size(); ++k) {
        across.emplace_back(here[k], next->second[std::min(k, next->second.size() - 1)]);
      }
    }
  }
  const auto slowest = [&](Ends ends) {
    double least = std::numeric_limits<double>::infinity();
    const std::variant<Hops, std::string> found = hops(std::move(ends));
    if (const Hops* way = std::get_if<Hops>(&found)) {
      for (const Hop& hop : way->different) least = std::min(least, hop.bandwidth.value);
    }
    return least;
  };
  made.link = BytesPerSecond{slowest(std::move(in_node))};
  if (made.nodes > 1) made.network = BytesPerSecond{static_cast<double>(fewest) * slowest(std::move(across))};
  return made;
}

std::variant<CollectiveTimes::Ways, std::string> CollectiveTimes::ways(std::span<const std::uint32_t> axes) {
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
  made.nccl = nccl_group(all);
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
    const bool takes_all_cards = measured_ && mesh_.axes[axes.front()].way == CollectiveWay::nccl;
    if (takes_all_cards || axes.size() > 1 || ways.all.ranks == 1 || !(ring.slowest < ring.fastest)) continue;
    std::array<char, 32> ratio{};
    const auto written = std::to_chars(ratio.data(), ratio.data() + ratio.size(),
                                       ring.fastest.value / ring.slowest.value, std::chars_format::general, 3);
    found.push_back("axis '" + mesh_.names_of(axes) + "' goes over links of unequal bandwidth: the slowest of them, " +
                    std::string(ratio.data(), written.ptr) + " times slower than the fastest, set the pace");
  }
  return found;
}

double CollectiveTimes::Hops::seconds(double bytes, double latencies) const {
  double longest = 0;
  for (const Hop& hop : different) {
    longest = std::max(longest, latencies * hop.latency.value + bytes / hop.bandwidth.value);
  }
  return longest;
}

double CollectiveTimes::Groups::ring_seconds(CollectiveKind kind, double bytes) const {
  const double n = ranks, share = bytes / n;
  const auto all_seconds = [&](const std::vector<Hops>& rounds) {
    double sum = 0;
    for (const Hops& each : rounds) sum += each.seconds(share);
    return sum;
  };
  if (kind == CollectiveKind::shift) return ring.seconds(bytes);
  const double around = (n - 1) * ring.seconds(share);
  if (kind == CollectiveKind::all_reduce) return 2 * around;
  if (kind == CollectiveKind::broadcast) return all_seconds(from_first) + around;
  if (kind != CollectiveKind::all_to_all) return around;
  if (!further_on.empty()) return all_seconds(further_on);
  double slowest = ring.seconds(share);
  for (const Hops& half : halves) slowest = std::max(slowest, half.seconds(share));
  return (n - 1) * slowest;
}

/// By ring, halving or trees; without end where the way is none for this.
Seconds CollectiveTimes::Groups::seconds(CollectiveKind kind, double bytes, CollectiveWay way) const {
  if (ranks == 1) return {};
  const auto may = [&](CollectiveWay one) { return way == CollectiveWay::fastest || way == one; };
  const bool twice = kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast;
  const double rounds = twice ? 2.0 : 1.0, n = ranks;
  double least = std::numeric_limits<double>::infinity();
  if (may(CollectiveWay::ring)) least = ring_seconds(kind, bytes);
  if (twice && may(CollectiveWay::trees)) {
    least = std::min(least, 2 * ring.seconds(bytes, std::ceil(std::log2(n))));
  }
  const bool halves_it =
      kind != CollectiveKind::all_to_all && kind != CollectiveKind::broadcast && kind != CollectiveKind::shift;
  if (halves_it && !halves.empty() && may(CollectiveWay::halving)) {
    double sum = 0, part = bytes;
    for (const Hops& half : halves) {
      part /= 2;
      sum += half.seconds(part);
    }
    least = std::min(least, rounds * sum);
  }
  return Seconds{least};
}

/// The same, or by levels.
Seconds CollectiveTimes::Ways::seconds(CollectiveKind kind, double bytes, CollectiveWay way) const {
  using enum CollectiveKind;
  const Seconds flat = all.seconds(kind, bytes, way);
  const bool takes_levels = way == CollectiveWay::levels || (way == CollectiveWay::fastest && kind == all_reduce);
  if (!within || !takes_levels || kind == all_to_all || kind == broadcast || kind == shift) return flat;
  Seconds levels = between->seconds(kind, bytes / within->ranks);
  levels += kind == all_reduce ? within->seconds(reduce_scatter, bytes) + within->seconds(all_gather, bytes)
                               : within->seconds(kind, bytes);
  return std::min(flat, levels);
}

/// What few collectives ask for is found when the first of them does.
void CollectiveTimes::add_hops_for(CollectiveKind kind, std::span<const std::uint32_t> axes, Groups& groups) {
  constexpr std::uint32_t most_rounds = 64;
  const bool asks_first = kind == CollectiveKind::broadcast && groups.from_first.empty();
  const bool asks_further =
      kind == CollectiveKind::all_to_all && groups.further_on.empty() && groups.ranks <= most_rounds;
  if (groups.ranks == 1 || (!asks_first && !asks_further)) return;
  const Members members = this->members(axes);
  for (std::size_t k = 1; k < groups.ranks; ++k) {
    Ends ends;
    for (const auto& group : members) {
      for (std::size_t r = 0; r < (asks_first ? 1 : group.size()); ++r) {
        ends.emplace_back(group[r], group[(r + k) % group.size()]);
      }
    }
    const std::variant<Hops, std::string> found = hops(std::move(ends));
    EXPECTS(std::holds_alternative<Hops>(found));  // there are ways along each of the axes
    (asks_first ? groups.from_first : groups.further_on).push_back(std::get<Hops>(found));
  }
}

Seconds CollectiveTimes::seconds(CollectiveKind kind, Bytes bytes, std::span<const std::uint32_t> axes) {
  const std::vector<std::uint32_t> group(axes.begin(), axes.end());
  auto found = ways_.find(group);
  if (found == ways_.end()) {
    std::variant<Ways, std::string> made = ways(axes);
    EXPECTS(std::holds_alternative<Ways>(made));  // there are ways along each of the axes
    found = ways_.try_emplace(group, std::get<Ways>(std::move(made))).first;
  }
  add_hops_for(kind, axes, found->second.all);
  const auto whole = static_cast<double>(bytes.count);
  const CollectiveWay way = asked_way(axes);
  if (way == CollectiveWay::nccl && measured_ && found->second.nccl.ranks > 1) {
    if (const std::optional<Seconds> known = nccl_seconds(*measured_, found->second.nccl, kind, whole)) return *known;
  }
  const Seconds asked = found->second.seconds(kind, whole, way == CollectiveWay::nccl ? CollectiveWay::ring : way);
  return std::isfinite(asked.value) ? asked : found->second.seconds(kind, whole, CollectiveWay::fastest);
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
