#pragma once
// Judges the graph of one rank against the whole graph, by rules of its own: it knows what the ops of the rank's graph
// say of themselves (attribute `cuts`, the axis of each collective) and how values must lie, and nothing of who
// planned.

#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// What is wrong, one sentence each; empty: nothing.
///  - Every op of the whole graph is there once, with its share of the work and of every operand's shape and bytes.
///  - It reads every value as its cuts say: whole or the right share, never a partial sum.
///  - Collectives do what their kind says: sums are made of partial sums, once; gathers of shares, the innermost first.
///  - No partial sum is left: every gradient of a parameter is whole where an update takes it.
/// Graphs as rank_graph makes them; what replicas share out (ZeRO) comes later.
std::vector<std::string> check_split(const Graph& whole, const Graph& rank, const Mesh&);

}  // namespace plimsoll
