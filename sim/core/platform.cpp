#include "sim/core/platform.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

std::optional<FlopsPerSecond> peak_of(const Device& device, std::string_view dtype) {
  for (const auto& [name, rate] : device.peak) {
    if (name == dtype) return rate;
  }
  return std::nullopt;
}

std::optional<BytesPerSecond> update_traffic(const Memory& memory) {
  if (!memory.adam) return std::nullopt;
  return std::min(BytesPerSecond{adam_moves * memory.adam->value}, memory.bandwidth.value_or(unlimited_bandwidth));
}

std::optional<BytesPerSecond> update_traffic(const Device& device) {
  return device.adam ? BytesPerSecond{adam_moves * device.adam->value} : device.memory_bandwidth;
}

BytesPerSecond bandwidth_of(const Link& link, bool down) {
  return down ? link.back.value_or(link.bandwidth) : link.bandwidth;
}

BytesPerSecond copy_bandwidth(const Memory& memory) {
  return memory.device ? unlimited_bandwidth : memory.bandwidth.value_or(unlimited_bandwidth);
}

RouteFinder::RouteFinder(const Platform& platform)
    : platform_(platform), links_of_(platform.vertices.size()), by_(links_of_.size()), seen_(links_of_.size()) {
  for (std::size_t l = 0; l < platform.links.size(); ++l) {
    links_of_[platform.links[l].from].push_back({id_at<LinkId>(l), false});
    links_of_[platform.links[l].to].push_back({id_at<LinkId>(l), true});
  }
}

namespace {

/// One vertex, and the links that end there: whether a switch of thousands is next to it is asked of these.
struct TheVertex {
  const Platform& platform;
  const std::vector<LinkUse>& links;  // as seen from it
  std::uint32_t vertex;

  bool operator()(std::uint32_t other) const { return other == vertex; }
  /// The first of them that begins at the other vertex.
  std::optional<LinkUse> link_from(std::uint32_t other) const {
    for (const LinkUse use : links) {
      const Link& link = platform[use.link];
      if ((use.down ? link.from : link.to) == other) return LinkUse{use.link, !use.down};
    }
    return std::nullopt;
  }
};

}  // namespace

/// Visits vertices, nearest first, until one is what is looked for; links in the order of the file, so that ties go to
/// those named first.
template <class IsGoal>
std::optional<std::uint32_t> RouteFinder::search(std::uint32_t start, IsGoal is_goal) {
  ++search_;
  order_.assign(1, start);
  seen_[start] = search_;
  for (std::size_t next = 0; next < order_.size(); ++next) {
    const std::uint32_t at = order_[next];
    const bool passes_data_on = at == start || !platform_.vertices[at].memory;  // memories forward nothing
    if (!passes_data_on) continue;
    if constexpr (requires { is_goal.link_from(at); }) {
      if (const std::optional<LinkUse> last = is_goal.link_from(at)) {
        by_[is_goal.vertex] = *last;
        return is_goal.vertex;
      }
    }
    for (const LinkUse use : links_of_[at]) {
      const Link& link = platform_[use.link];
      const std::uint32_t to = use.down ? link.from : link.to;
      if (seen_[to] == search_) continue;
      seen_[to] = search_;
      by_[to] = use;
      if (is_goal(to)) return to;
      order_.push_back(to);
    }
  }
  return std::nullopt;
}

std::optional<Route> RouteFinder::between(MemoryId from, MemoryId to) {
  EXPECTS(from.index < platform_.memories.size() && to.index < platform_.memories.size());
  Route route{.from = from, .to = to, .links = {}, .latency = {}};
  route.bandwidth = std::min(copy_bandwidth(platform_[from]), copy_bandwidth(platform_[to]));
  if (from == to) {
    route.bandwidth = BytesPerSecond{route.bandwidth.value / 2};  // reads and writes the same memory
    return route;
  }
  if (!search(from.index, TheVertex{platform_, links_of_[to.index], to.index})) return std::nullopt;
  for (std::uint32_t at = to.index; at != from.index;) {
    const LinkUse use = by_[at];
    route.links.push_back(use);
    at = use.down ? platform_[use.link].to : platform_[use.link].from;
  }
  std::ranges::reverse(route.links);
  for (const LinkUse use : route.links) {
    route.latency += platform_[use.link].latency;
    route.bandwidth = std::min(route.bandwidth, bandwidth_of(platform_[use.link], use.down));
  }
  return route;
}

std::optional<MemoryId> RouteFinder::memory_at(DeviceId device, MemoryId place) {
  if (place == place::device || place == place::links) return platform_[device].memory;
  if (place == place::host) return host_of(device);
  if (place == place::disk) return disk_of(device);
  return place.index < platform_.memories.size() ? std::optional(place) : std::nullopt;
}

std::optional<MemoryId> RouteFinder::host_of(DeviceId device) {
  if (platform_[device].host) return platform_[device].host;
  const auto is_host = [this](std::uint32_t vertex) {
    const std::optional<MemoryId> memory = platform_.vertices[vertex].memory;
    return memory && !platform_[*memory].device;
  };
  const std::optional<std::uint32_t> found = search(platform_[device].memory.index, is_host);
  return found ? platform_.vertices[*found].memory : std::nullopt;
}

std::optional<MemoryId> RouteFinder::disk_of(DeviceId device) {
  if (platform_[device].disk) return platform_[device].disk;
  const std::optional<MemoryId> host = host_of(device);
  if (!host) return std::nullopt;
  std::vector<bool> is_host(platform_.memories.size(), false);
  for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
    if (const std::optional<MemoryId> other = host_of(id_at<DeviceId>(d))) is_host[other->index] = true;
  }
  const auto is_disk = [&](std::uint32_t vertex) {
    const std::optional<MemoryId> memory = platform_.vertices[vertex].memory;
    return memory && !platform_[*memory].device && !is_host[memory->index];
  };
  const std::optional<std::uint32_t> found = search(host->index, is_disk);
  return found ? platform_.vertices[*found].memory : std::nullopt;
}

std::optional<Route> route_between(const Platform& platform, MemoryId from, MemoryId to) {
  return RouteFinder(platform).between(from, to);
}

std::optional<MemoryId> memory_at(const Platform& platform, DeviceId device, MemoryId place) {
  return RouteFinder(platform).memory_at(device, place);
}

}  // namespace plimsoll
