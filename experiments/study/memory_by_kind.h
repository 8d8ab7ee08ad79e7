#pragma once
// Live bytes of every memory over time, split by what they hold.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "sim/core/graph.h"
#include "sim/core/names.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

/// The kinds of tensors, then workspaces and what is kept in a packed form, of whatever kind.
inline constexpr std::size_t memory_kinds = 8;
inline constexpr std::size_t workspace_kind = 6, packed_kind = 7;
inline constexpr auto memory_kind_names = [] {
  std::array<std::string_view, memory_kinds> names;
  for (const auto& [kind, name] : Names<TensorKind>::all) names[static_cast<std::size_t>(kind)] = name;
  names[workspace_kind] = "workspace";
  names[packed_kind] = "packed";
  return names;
}();

inline std::size_t memory_kind(const Graph& graph, const Buffer& buffer) {
  return buffer.is_packed() ? packed_kind : static_cast<std::size_t>(graph[buffer.tensor].kind);
}

using BytesByKind = std::array<std::int64_t, memory_kinds>;

std::int64_t sum(const BytesByKind&);

/// Calls `visit(memory, date, live)` for date 0 and then for every change, dates ascending. Of the rounds of one date
/// that change a memory the fullest is told where it stands out, and the last.
void walk_memories(const Graph&, const Platform&, const Schedule&, const Timeline&,
                   const std::function<void(MemoryId, Seconds, const BytesByKind&)>& visit);

}  // namespace plimsoll
