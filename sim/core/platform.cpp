#include "sim/core/platform.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Breadth-first tree of the links used to reach every vertex from `start`; links in the order of the file, so that
/// ties go to those named first.
struct Reached {
  std::vector<std::optional<LinkUse>> by;  ///< the link that reached a vertex; unset: not reached, or the start
  std::vector<std::uint32_t> order;        ///< vertices, nearest first
};

Reached reach(const Platform& platform, std::uint32_t start) {
  std::vector<std::vector<LinkUse>> links_of(platform.vertices.size());
  for (std::size_t l = 0; l < platform.links.size(); ++l) {
    links_of[platform.links[l].from].push_back({id_at<LinkId>(l), false});
    links_of[platform.links[l].to].push_back({id_at<LinkId>(l), true});
  }
  Reached reached{std::vector<std::optional<LinkUse>>(platform.vertices.size()), {start}};
  std::vector<bool> seen(platform.vertices.size(), false);
  seen[start] = true;
  for (std::size_t next = 0; next < reached.order.size(); ++next) {
    const std::uint32_t at = reached.order[next];
    const bool passes_data_on = at == start || !platform.vertices[at].memory;  // memories forward nothing
    if (!passes_data_on) continue;
    for (const LinkUse use : links_of[at]) {
      const Link& link = platform[use.link];
      const std::uint32_t to = use.down ? link.from : link.to;
      if (seen[to]) continue;
      seen[to] = true;
      reached.by[to] = use;
      reached.order.push_back(to);
    }
  }
  return reached;
}

}  // namespace

std::optional<Route> route_between(const Platform& platform, MemoryId from, MemoryId to) {
  EXPECTS(from.index < platform.memories.size() && to.index < platform.memories.size());
  Route route{from, to, {}, {}};
  if (from == to) return route;
  const Reached reached = reach(platform, from.index);
  if (!reached.by[to.index]) return std::nullopt;
  for (std::uint32_t at = to.index; at != from.index;) {
    const LinkUse use = *reached.by[at];
    route.links.push_back(use);
    at = use.down ? platform[use.link].to : platform[use.link].from;
  }
  std::ranges::reverse(route.links);
  for (const LinkUse use : route.links) route.latency += platform[use.link].latency;
  return route;
}

std::optional<MemoryId> host_memory(const Platform& platform, DeviceId device) {
  for (const std::uint32_t vertex : reach(platform, platform[device].memory.index).order) {
    const std::optional<MemoryId> memory = platform.vertices[vertex].memory;
    if (memory && !platform[*memory].device) return memory;
  }
  return std::nullopt;
}

}  // namespace plimsoll
