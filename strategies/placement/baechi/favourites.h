#pragma once
// Which reader of each op should run on the op's own processor right after it: its favourite child.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// The largest graph, in nodes and edges that send together, that the linear program is asked about.
inline constexpr std::size_t largest_favourite_program = 10'000;

/// By node: its favourite child, or no_node. None is the favourite of two.
struct Favourites {
  std::vector<std::uint32_t> child;
  bool by_program = false;  ///< by the linear program; else the readers with the largest transfers
};

Favourites favourite_children(const OpDag&, const Machine&);

/// The relaxation of the choice on unlimited processors, rounded; empty where the solver does not end in `seconds`.
std::vector<std::uint32_t> favourites_by_program(const OpDag&, const Machine&, double seconds);
/// Edges by their transfers, the longest first, as long as neither end has one.
std::vector<std::uint32_t> favourites_by_transfer(const OpDag&, const Machine&);

}  // namespace plimsoll
