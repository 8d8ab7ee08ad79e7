#pragma once
// ParDNN's first stage: a graph cut into paths, the heaviest first.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// Paths, each a list of nodes in the order of their edges; every node that may be cut is in one.
struct Slices {
  std::vector<std::vector<std::uint32_t>> primary;    ///< heaviest first, one for each processor or fewer
  std::vector<std::vector<std::uint32_t>> secondary;  ///< in the order in which they are cut
};

/// So many primary paths from levels of what is left, the others from levels that are computed once with transfers
/// within primaries free. `time` is by node, `transfer` by edge in the order of OpDag::out. Nodes that `may_cut` does
/// not name are in no path; none goes over them.
Slices pardnn_slices(const OpDag&, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer,
                     std::size_t primaries, const std::vector<bool>& may_cut);

/// Whether all its work is less than twice its longest path, with mean times and transfers.
bool is_thin(const OpDag&, const Machine&);

}  // namespace plimsoll
