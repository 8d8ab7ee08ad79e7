#include "sim/mesh/folded.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/mesh/collective_times.h"

namespace plimsoll {
namespace {

/// Of a value whose gathering says how fast values between stages are gathered.
constexpr Bytes scattered_value{64'000'000};

/// Of a link and direction: how many routes go over it, and how many of them are of devices that stay.
struct Users {
  std::uint32_t all = 0, stay = 0;
};

class Folding {
 public:
  Folding(const Platform& platform, const Mesh& mesh)
      : platform_(platform),
        ranks_(mesh.ranks()),
        used_(platform.devices.size() / ranks_ * ranks_),
        finder_(platform) {}

  /// `gathering`: how long a byte takes to be gathered by `sending` ranks that each send their share.
  Platform run(std::uint32_t sending, double gathering) {
    made_ = platform_;
    share_links();
    if (sending > 1) scatter(sending, gathering);
    share_hosts();
    keep_first_devices();
    return std::move(made_);
  }

 private:
  bool stays(std::size_t device) const { return device % ranks_ == 0; }

  template <class Target>
  void share_links_of(Target target_of) {
    std::vector<Users> users(2 * platform_.links.size());
    for (std::size_t d = 0; d < used_; ++d) {
      const std::optional<MemoryId> target = target_of(d);
      if (!target) continue;
      const std::optional<Route> route = finder_.between(platform_.devices[d].memory, *target);
      if (!route) continue;
      for (const LinkUse& use : route->links) {
        Users& here = users[2 * std::size_t{use.link.index} + (use.down ? 1 : 0)];
        ++here.all;
        if (stays(d)) ++here.stay;
      }
    }
    for (std::size_t l = 0; l < platform_.links.size(); ++l) {
      for (const Users& here : {users[2 * l], users[2 * l + 1]}) {
        if (here.stay == 0) continue;
        const double part = static_cast<double>(here.stay) / here.all;
        Link& made = made_.links[l];
        const Link& link = platform_.links[l];
        made.bandwidth.value = std::min(made.bandwidth.value, part * link.bandwidth.value);
        if (link.back) made.back->value = std::min(made.back->value, part * link.back->value);
      }
    }
  }

  void share_links() {
    share_links_of([&](std::size_t d) { return finder_.memory_at(id_at<DeviceId>(d), place::host); });
    if (used_ == ranks_) return;
    share_links_of(
        [&](std::size_t d) -> std::optional<MemoryId> { return platform_.devices[(d + ranks_) % used_].memory; });
    share_links_of([&](std::size_t d) -> std::optional<MemoryId> {
      return platform_.devices[(d + used_ - ranks_) % used_].memory;
    });
  }

  void scatter(std::uint32_t sending, double gathering) {
    std::vector<bool> to_stages(platform_.links.size()), to_hosts(platform_.links.size());
    const auto mark = [&](std::vector<bool>& links, std::size_t d, std::optional<MemoryId> target) {
      const std::optional<Route> route = target ? finder_.between(platform_.devices[d].memory, *target) : std::nullopt;
      if (!route) return;
      for (const LinkUse& use : route->links) links[use.link.index] = true;
    };
    for (std::size_t d = 0; d < used_; d += ranks_) {
      mark(to_hosts, d, finder_.memory_at(id_at<DeviceId>(d), place::host));
      mark(to_stages, d, platform_.devices[(d + ranks_) % used_].memory);
      mark(to_stages, d, platform_.devices[(d + used_ - ranks_) % used_].memory);
    }
    const auto faster = [&](BytesPerSecond& of) { of.value = 1 / (1 / (sending * of.value) + gathering); };
    for (std::size_t l = 0; l < platform_.links.size(); ++l) {
      if (!to_stages[l] || to_hosts[l]) continue;
      faster(made_.links[l].bandwidth);
      if (made_.links[l].back) faster(*made_.links[l].back);
    }
  }

  void share_hosts() {
    std::map<MemoryId, Users> users;
    for (std::size_t d = 0; d < used_; ++d) {
      const std::optional<MemoryId> host = finder_.memory_at(id_at<DeviceId>(d), place::host);
      if (!host) continue;
      made_.devices[d].host = host;
      ++users[*host].all;
      if (stays(d)) ++users[*host].stay;
    }
    for (const auto& [host, here] : users) {
      if (here.stay == 0) continue;
      const double part = static_cast<double>(here.stay) / here.all;
      Memory& memory = made_.memories[host.index];
      if (memory.capacity) {
        memory.capacity = Bytes{static_cast<std::int64_t>(part * static_cast<double>(memory.capacity->count))};
      }
      for (std::optional<BytesPerSecond>* rate : {&memory.bandwidth, &memory.adam}) {
        if (*rate) (*rate)->value *= part;
      }
      for (auto& [dtype, peak] : memory.peak) peak.value *= part;
    }
  }

  void keep_first_devices() {
    constexpr std::uint32_t gone = UINT32_MAX;
    std::vector<std::uint32_t> vertex(platform_.vertices.size(), gone);
    std::vector<Memory> memories;
    std::vector<Vertex> vertices, passed;
    std::vector<Device> devices;
    std::vector<std::optional<MemoryId>> memory_of(platform_.memories.size());
    for (std::size_t m = 0; m < made_.memories.size(); ++m) {
      const std::optional<DeviceId> device = made_.memories[m].device;
      if (device && !(device->index < used_ && stays(device->index))) continue;
      memory_of[m] = id_at<MemoryId>(memories.size());
      memories.push_back(std::move(made_.memories[m]));
      if (device) memories.back().device = DeviceId{device->index / ranks_};
    }
    for (std::size_t v = 0; v < platform_.vertices.size(); ++v) {
      const std::optional<MemoryId> memory = platform_.vertices[v].memory;
      if (memory && memory_of[memory->index]) {
        vertex[v] = memory_of[memory->index]->index;
      } else if (!memory) {
        vertex[v] = static_cast<std::uint32_t>(memories.size() + passed.size());
        passed.push_back({std::nullopt, platform_.vertices[v].name});
      }
    }
    for (std::size_t m = 0; m < memories.size(); ++m) vertices.push_back({id_at<MemoryId>(m), memories[m].name});
    vertices.insert(vertices.end(), passed.begin(), passed.end());
    // Memories pass nothing on: links that end at one that is gone are of no use to others.
    std::erase_if(made_.links, [&](const Link& link) { return vertex[link.from] == gone || vertex[link.to] == gone; });
    for (Link& link : made_.links) {
      link.from = vertex[link.from];
      link.to = vertex[link.to];
    }
    for (std::size_t d = 0; d < used_; d += ranks_) {
      Device device = std::move(made_.devices[d]);
      device.memory = *memory_of[device.memory.index];
      for (std::optional<MemoryId>* place : {&device.host, &device.disk}) {
        if (*place) *place = memory_of[(*place)->index];
      }
      devices.push_back(std::move(device));
    }
    made_.memories = std::move(memories);
    made_.vertices = std::move(vertices);
    made_.devices = std::move(devices);
  }

  const Platform& platform_;
  std::uint32_t ranks_;
  std::size_t used_;  // devices
  RouteFinder finder_;
  Platform made_;
};

}  // namespace

std::variant<Platform, std::string> folded(const Platform& platform, const Mesh& mesh) {
  if (mesh.ranks() > platform.devices.size()) {
    return "a mesh of " + std::to_string(mesh.ranks()) + " ranks, but '" + platform.name + "' has " +
           std::to_string(platform.devices.size()) + (platform.devices.size() == 1 ? " device" : " devices");
  }
  if (mesh.ranks() == 1) return platform;
  const auto scattering = std::ranges::find(mesh.axes, true, &Axis::scatters);
  if (scattering == mesh.axes.end()) return Folding(platform, mesh).run(1, 0);
  std::variant<CollectiveTimes, std::string> times = CollectiveTimes::on(platform, mesh);
  if (std::string* why = std::get_if<std::string>(&times)) return std::move(*why);
  const std::array axes{static_cast<std::uint32_t>(scattering - mesh.axes.begin())};
  const Seconds gathered = std::get<CollectiveTimes>(times).seconds(CollectiveKind::all_gather, scattered_value, axes);
  return Folding(platform, mesh).run(scattering->ranks, gathered.value / static_cast<double>(scattered_value.count));
}

}  // namespace plimsoll
