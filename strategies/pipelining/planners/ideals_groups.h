#pragma once
// What must share a device, as one node each: the graph that plan_ideals() searches.

#include <cstdint>
#include <vector>

#include "strategies/pipelining/planners/downsets.h"
#include "strategies/pipelining/planners/ideals.h"

namespace plimsoll {

struct NodeGroups {
  std::vector<std::vector<std::uint32_t>> members;  ///< nodes of each group, ascending
  Dag dag;                                          ///< which groups come first in the forward
};

/// Groups are nodes of one number, each pass by itself, with the backward of the same number; what forward edges
/// between such groups tie into a circle; and what takes no time, has no input and one reader, with that reader.
/// Backward nodes without a forward of their number stand in the forward's order as the edges between backward nodes
/// say, reversed.
NodeGroups groups_of(const IdealsProblem&);

}  // namespace plimsoll
