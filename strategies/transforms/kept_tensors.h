#pragma once
// Graphs with fewer tensors, for transforms: what is left is numbered anew.

#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// By tensor: whether an op names it.
std::vector<bool> named_tensors(const Graph&);

/// Takes the other tensors out; no op names one of them. `keeps` is by tensor.
void keep_tensors(Graph&, const std::vector<bool>& keeps);

/// Takes the other ops out, which are in no group of `colocate` any more then; by op: its new place, or no_op.
std::vector<OpId> keep_ops(Graph&, const std::vector<bool>& keeps);

}  // namespace plimsoll
