#pragma once
// Largest flow and smallest cut of a network.
// Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll {

/// Flows are exact up to twice that. In a network whose smallest cut may come to it, an edge of twice that is never
/// cut.
inline constexpr double largest_flow = static_cast<double>(std::int64_t{1} << 51);
/// More than the rounding of a few products and sums.
inline constexpr double flow_rounding = 4e-16;
/// A capacity as a whole number, never a greater one.
double whole_capacity(double);
/// Costs times this become whole: the seconds of all that may run again, `again`, have 1e14 steps. Fewer where a
/// smallest cut that costs `at_most` would be no exact flow.
double capacity_scale(double again, double at_most);

/// Whole capacities whose sum is below 2^53 give exact flows.
class FlowGraph {
 public:
  static constexpr double unlimited = std::numeric_limits<double>::infinity();

  explicit FlowGraph(std::size_t nodes) : nodes_(nodes) {}

  /// The edge's number: 0, 1, 2, ...
  std::size_t edge(std::size_t from, std::size_t to, double capacity);
  /// For the next cut.
  void set_capacity(std::size_t edge, double capacity);

  struct Cut {
    double flow = 0;                ///< the capacity of the edges that leave the source's side
    std::vector<bool> source_side;  ///< by node
  };
  /// The smallest cut, of several the one nearest to the source. Some limited edge must lie on every way.
  Cut cut(std::size_t source, std::size_t sink);

 private:
  struct Edge {
    std::uint32_t from, to;
    double capacity;
  };
  struct Arc {
    std::uint32_t to, back;  ///< `back`: the arc of the way back
    double left;             ///< capacity that is not used yet
  };

  void lay_out();
  bool measure(std::uint32_t source, std::uint32_t sink);
  double fill(std::uint32_t source, std::uint32_t sink);

  std::size_t nodes_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> arc_of_;  // by edge; those of the edges laid out
  std::vector<std::uint32_t> first_;   // by node: of its arcs; and the end
  std::vector<Arc> arcs_;              // by the node that they leave
  std::vector<std::uint32_t> level_, next_, queue_, way_;
};

}  // namespace plimsoll
