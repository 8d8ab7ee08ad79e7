#pragma once
// Which ops must or should share a processor.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// By node: the number of its group, the smallest node in it. Those of OpDag::together, and an op with its only reader,
/// unless the same processors cannot run both, or their group would take more time than a processor's share of all, or
/// more resident bytes than any processor has.
std::vector<std::uint32_t> co_placed(const OpDag&, const Machine&);

}  // namespace plimsoll
