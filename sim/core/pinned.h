#pragma once
// Ops that run on a host's processor wherever the rest runs: the trace gives them the attribute `device` = `host`, and
// their time is the host's.

#include <algorithm>

#include "sim/core/graph.h"

namespace plimsoll {

inline bool is_pinned_to_host(const Op& op) {
  return std::ranges::any_of(op.attributes, [](const auto& a) { return a.first == "device" && a.second == "host"; });
}

inline bool has_pinned_ops(const Graph& graph) {
  return std::ranges::any_of(graph.ops, is_pinned_to_host);
}

}  // namespace plimsoll
