#pragma once
// Largest flow and smallest cut of a network.
// Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll {

class FlowGraph {
 public:
  static constexpr double unlimited = std::numeric_limits<double>::infinity();

  explicit FlowGraph(std::size_t nodes) : out_(nodes) {}

  void edge(std::size_t from, std::size_t to, double capacity);

  /// Which nodes are still reached from `source` when the smallest cut is made, the one nearest to the source. Some
  /// limited edge must lie on every way.
  std::vector<bool> source_side(std::size_t source, std::size_t sink);

 private:
  struct Edge {
    std::uint32_t to;
    double left;  ///< capacity that is not used yet; edge e ^ 1 is the way back
  };

  bool measure(std::size_t source, std::size_t sink);
  bool augment(std::size_t source, std::size_t sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<std::uint32_t>> out_;  // by node: edges
  std::vector<std::uint32_t> level_, next_;      // by node
};

}  // namespace plimsoll
