#pragma once
// Places: a memory by its index, or one that is relative to a device: its own memory, its host, its disk, its links.
// The platform decides which memory is the host or the disk of a device (RouteFinder::memory_at).

#include <compare>
#include <limits>
#include <optional>
#include <string_view>

#include "sim/core/ids.h"

namespace plimsoll {

/// Places that are relative to a device, in place of the index of a memory.
namespace place {
inline constexpr MemoryId device{std::numeric_limits<std::uint32_t>::max()};     ///< its own memory
inline constexpr MemoryId host{std::numeric_limits<std::uint32_t>::max() - 1};   ///< where its offloaded values go
inline constexpr MemoryId disk{std::numeric_limits<std::uint32_t>::max() - 2};   ///< the memory behind its host
inline constexpr MemoryId links{std::numeric_limits<std::uint32_t>::max() - 3};  ///< no memory: what runs there
                                                                                 ///< exchanges values with other ranks
}  // namespace place

/// `device`, `host`, `disk` or `links`; nothing for the index of a memory.
constexpr std::optional<std::string_view> relative_name(MemoryId at) {
  if (at == place::device) return "device";
  if (at == place::host) return "host";
  if (at == place::disk) return "disk";
  if (at == place::links) return "links";
  return std::nullopt;
}

/// What a stream does for its device: copies from one place to another or, where they are the same, computes there.
struct Way {
  MemoryId from = place::device, to = place::device;
  friend constexpr auto operator<=>(const Way&, const Way&) = default;

  constexpr bool computes() const { return from == to; }

  constexpr bool exchanges() const { return to == place::links; }

  constexpr bool computes_elsewhere() const { return computes() && to != place::device && !exchanges(); }

  /// Whether it copies towards the device.
  constexpr bool is_inward() const {
    return to == place::device || (to == place::host && from != place::device && !computes());
  }
};

namespace way {
inline constexpr Way compute{}, on_host{place::host, place::host};
inline constexpr Way network{place::links, place::links};  ///< collectives beside what the device computes
inline constexpr Way device_to_host{place::device, place::host}, host_to_device{place::host, place::device};
inline constexpr Way disk_to_host{place::disk, place::host}, host_to_disk{place::host, place::disk};
}  // namespace way

}  // namespace plimsoll
