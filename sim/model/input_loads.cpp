#include "sim/model/input_loads.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "sim/core/places.h"

namespace plimsoll {
namespace {

constexpr std::string_view unsaid = "from one op's end to the next one's, in place";

bool has_note(const Source& source, std::string_view key, std::string_view begins, bool whole) {
  return std::ranges::any_of(source.notes, [&](const auto& note) {
    return note.first == key && (whole ? note.second == begins : note.second.starts_with(begins));
  });
}

std::optional<Route> way_in(const Platform& platform) {
  const std::optional<MemoryId> host = memory_at(platform, DeviceId{0}, place::host);
  return host ? route_between(platform, *host, platform.devices.front().memory) : std::nullopt;
}

}  // namespace

void find_loads(Graph& graph, const Platform& platform) {
  const Source& source = graph.source;
  if (source.kind != Source::Kind::measured || !has_note(source, "clock", unsaid, true) ||
      !has_note(source, "library", "CUDA ", false)) {
    return;
  }
  const std::optional<Route> route = way_in(platform);
  if (!route) return;
  // By the links alone: the host bandwidth that was calibrated then was that of one thread's updates.
  BytesPerSecond bandwidth = unlimited_bandwidth;
  for (const LinkUse use : route->links) bandwidth = std::min(bandwidth, bandwidth_of(platform[use.link], use.down));
  std::set<StorageId> there;
  for (Op& op : graph.ops) {
    for (const TensorId t : op.inputs) {
      const Tensor& tensor = graph[t];
      if (tensor.kind != TensorKind::input || !there.insert(tensor.storage).second) continue;
      op.load += route->latency + tensor.bytes / bandwidth;
    }
  }
}

}  // namespace plimsoll
