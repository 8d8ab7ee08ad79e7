#pragma once
// A graph of ops made smaller before it is placed: groups that share a processor, and neighbours that become
// one op.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

// Which ops must or should share a processor.

/// By node: the number of its group, the smallest node in it. Those of OpDag::together, and an op with its only reader,
/// unless the same processors cannot run both, or their group would take more time than a processor's share of all, or
/// more resident bytes than any processor has.
std::vector<std::uint32_t> co_placed(const OpDag&, const Machine&);

struct FusedDag {
  OpDag dag;
  std::vector<std::vector<std::uint32_t>> members;  ///< by fused node: nodes, in their order
};

/// Two nodes of one group become one where the first leads to nothing else or the second has nothing else before it.
/// A fused node takes the time of all its nodes; its workspace is what they need at most at once, values that only they
/// read included.
FusedDag fused(const OpDag&, const std::vector<std::uint32_t>& group);

}  // namespace plimsoll
