#pragma once
// Where groups of nodes that share a processor go: after ParDNN has mapped paths, or before all else.

#include <optional>
#include <vector>

#include "strategies/placement/units.h"

namespace plimsoll {

/// Each group of nodes goes where its nodes have been for the longest time and with which they would exchange the most.
void collocate(const OpDag&, const Machine&, const Units&, std::vector<std::uint32_t>& on);

/// By node: a processor of the field. Groups of several nodes are taken in the order of their first nodes, single nodes
/// are where the largest value is made that they read, or else read that they make. A group goes to the processor with
/// which it exchanges most of those whose share of all work of groups has room for half of it, or else to the one that
/// is filled least. Nothing where there is no group.
std::optional<std::vector<std::uint32_t>> near_groups(const OpDag&, const Machine&, const Units&);

}  // namespace plimsoll
