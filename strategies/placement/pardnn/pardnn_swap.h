#pragma once
// The first step of ParDNN's refinement: paths that lie between the nodes of another processor go there.

#include <vector>

#include "strategies/placement/pardnn/pardnn_mapping.h"

namespace plimsoll {

/// By node: processor. A path that waits for one other processor only, and for which only that one waits, changes
/// places with one for which it is the other way round, if the more loaded of the two then has less to do in their
/// spans, or goes there alone. Groups are together in `on`; only paths of whole units move, within the field.
std::vector<std::uint32_t> with_swapped_paths(const OpDag&, const Machine&, const PardnnMapping&,
                                              std::vector<std::uint32_t> on);

}  // namespace plimsoll
