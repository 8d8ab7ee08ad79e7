#include "experiments/study/choice/changed_platform.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

std::string without_number(std::string name) {
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0) name.pop_back();
  return name;
}

/// What a platform file calls it: instances are numbered, and what several share is two, `pcie` and `pcie.gpu`.
std::string kind_of(const Link& link) {
  return without_number(link.name.substr(0, link.name.find('.')));
}

}  // namespace

std::set<std::string> link_kinds(const Platform& platform) {
  std::set<std::string> kinds;
  for (const Link& link : platform.links) kinds.insert(kind_of(link));
  return kinds;
}

Platform with_faster_links(Platform platform, const std::string& kind) {
  for (Link& link : platform.links) {
    if (kind_of(link) != kind) continue;
    link.bandwidth.value *= 2;
    if (link.back) link.back->value *= 2;
  }
  return platform;
}

Platform with_another_device(Platform platform) {
  EXPECTS(!platform.devices.empty());
  Device device = platform.devices.back();
  const std::uint32_t like = device.memory.index;
  const auto added = static_cast<std::uint32_t>(platform.memories.size());
  Memory memory = platform[device.memory];
  device.name = memory.name = without_number(device.name) + std::to_string(platform.devices.size());
  device.memory = MemoryId{added};
  memory.device = id_at<DeviceId>(platform.devices.size());
  platform.vertices.insert(platform.vertices.begin() + added, {device.memory, memory.name});
  platform.devices.push_back(std::move(device));
  platform.memories.push_back(std::move(memory));
  const std::size_t before = platform.links.size();
  std::optional<Link> to_device;
  for (std::size_t k = 0; k < before; ++k) {
    Link& link = platform.links[k];
    for (std::uint32_t* end : {&link.from, &link.to}) *end += *end >= added ? 1 : 0;  // switches come behind memories
    if (link.from != like && link.to != like) continue;
    Link other = link;
    const std::uint32_t far = link.from == like ? link.to : link.from;
    (link.from == like ? other.from : other.to) = added;
    if (far < added && platform.memories[far].device && !to_device) {
      to_device = other;
      (link.from == like ? to_device->to : to_device->from) = like;
    }
    platform.links.push_back(std::move(other));
  }
  if (to_device) platform.links.push_back(*std::move(to_device));
  return platform;
}

}  // namespace plimsoll
