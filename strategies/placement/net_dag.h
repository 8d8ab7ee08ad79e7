#pragma once
// A graph without circles whose nets are what one vertex makes and others read: what cuts into parts are counted on,
// once for each value and part that reads it.

#include <span>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

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

}  // namespace plimsoll
