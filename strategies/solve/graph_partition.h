#pragma once
// Parts of undirected graphs with few and light edges between them, by libraries that are loaded when first needed.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace plimsoll {

/// An undirected graph; each edge is listed at both ends. All weights together, and edges at both ends, are below 2^31.
struct WeightedGraph {
  std::vector<std::int32_t> first{0};  ///< by node: where its neighbours begin; and the end of the last one's
  std::vector<std::int32_t> neighbour, edge_weight;
  std::vector<std::int32_t> weight;  ///< by node: at least 1

  std::size_t size() const { return weight.size(); }
};

/// By node: its part; or why there are none, as a sentence without an end.
using GraphParts = std::variant<std::vector<std::int32_t>, std::string>;

/// `plimsoll_metis` of libplimsoll_metis.so, and likewise for Scotch.
struct GraphPartitioner {
  std::string_view name;
  /// Unchecked; unset: it says that it has none. The shares are of the weight, by part; they sum to 1 and none is 0.
  std::optional<std::vector<std::int32_t>> (*parts)(const WeightedGraph&, std::span<const double> shares,
                                                    std::int32_t seed);
};

/// What the library `metis` or `scotch` gives in a process of its own, since it may end that where graphs are unusual.
/// Every node has a part, and none is heavier than twice its share and the heaviest node.
GraphParts partition_graph(const std::string& library, const WeightedGraph&, std::span<const double> shares,
                           std::int32_t seed);

/// The checks alone, on what a library of this name gave.
GraphParts checked_parts(std::string_view name, const WeightedGraph&, std::span<const double> shares,
                         std::vector<std::int32_t> parts);

}  // namespace plimsoll
