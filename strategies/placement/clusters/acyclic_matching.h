#pragma once
// Pairs of vertices that can become one without making a circle.

#include <cstdint>
#include <random>
#include <vector>

#include "strategies/placement/net_dag.h"

namespace plimsoll {

/// From which end levels are counted: the longest path to a vertex, or from it.
enum class LevelsFrom : std::uint8_t { start, end };

/// By vertex: the smaller number of its pair, or its own. A vertex pairs with the one that it shares the most bytes
/// with; no pair weighs more than `most`. Vertices are asked in a random order.
std::vector<std::uint32_t> acyclic_matching(const NetDag&, LevelsFrom, std::int64_t most, std::mt19937_64&);

}  // namespace plimsoll
