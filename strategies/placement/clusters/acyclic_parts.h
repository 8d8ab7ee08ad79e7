#pragma once
// Parts of a graph that are numbered so that no value leads to an earlier one: its nets, pairs of vertices
// that become one, and cuts.

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

// A graph without circles whose nets are what one vertex makes and others read: what cuts into parts are counted on,
// once for each value and part that reads it.

/// No net leads from a vertex to one of a smaller or equal number.
struct NetDag {
  std::vector<std::int64_t> weight;  ///< by vertex
  std::vector<std::uint32_t> maker;  ///< by net: a vertex
  std::vector<std::int64_t> bytes;   ///< by net
  Rows<std::uint32_t> readers;       ///< by net: vertices, ascending
  Rows<std::uint32_t> makes, reads;  ///< by vertex: nets

  std::uint32_t size() const { return static_cast<std::uint32_t>(weight.size()); }
  std::uint32_t nets() const { return static_cast<std::uint32_t>(maker.size()); }
};

/// A graph whose vertices are clusters of another one's.
struct NetContraction {
  NetDag dag;
  std::vector<std::uint32_t> of;  ///< by vertex of the other one
};

/// Circles become one vertex: nets may lead anywhere, but not back to their makers.
NetContraction without_circles(const NetDag& any);

/// Vertices of one cluster become one. Clusters do not wait for each other in a circle.
NetContraction contracted(const NetDag&, std::span<const std::uint32_t> cluster);

/// Fills `makes` and `reads` from the nets.
void list_nets(NetDag&);

// Pairs of vertices that can become one without making a circle.

/// From which end levels are counted: the longest path to a vertex, or from it.
enum class LevelsFrom : std::uint8_t { start, end };

/// By vertex: the smaller number of its pair, or its own. A vertex pairs with the one that it shares the most bytes
/// with; no pair weighs more than `most`. Vertices are asked in a random order.
std::vector<std::uint32_t> acyclic_matching(const NetDag&, LevelsFrom, std::int64_t most, std::mt19937_64&);

// Parts of a graph of nets that are numbered so that no net leads from one to a smaller number.

/// What a part is given, and what it may have at most.
struct PartLimit {
  double share = 0;  ///< of all weight; they sum to 1
  double most = 0;   ///< weight
};

/// By vertex: its part. The best of three ways to grow one part after the other, each improved.
std::vector<std::uint32_t> grown_parts(const NetDag&, std::span<const PartLimit>);

/// Moves single vertices to parts where less is cut, or that have less to do, until none gains or the passes end.
void improve_parts(const NetDag&, std::span<const PartLimit>, std::vector<std::uint32_t>& part);

/// Bytes of each net times the parts that read it beside its maker's.
std::int64_t cut_bytes(const NetDag&, std::span<const std::uint32_t> part);

}  // namespace plimsoll
