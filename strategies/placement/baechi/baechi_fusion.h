#pragma once
// A graph of ops made smaller before it is placed: neighbours of one group become one op where that makes no circle.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

struct FusedDag {
  OpDag dag;
  std::vector<std::vector<std::uint32_t>> members;  ///< by fused node: nodes, in their order
};

/// Two nodes of one group become one where the first leads to nothing else or the second has nothing else before it.
/// A fused node takes the time of all its nodes; its workspace is what they need at most at once, values that only they
/// read included.
FusedDag fused(const OpDag&, const std::vector<std::uint32_t>& group);

}  // namespace plimsoll
