#pragma once
// How many kernels a device launches for all updates of an iteration, and what they move.

#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {

// PyTorch's optimizers work on lists of parameters. A kernel takes so many tensors as its arguments have room for, the
// fewer the more lists it reads, and so many chunks of 65,536 numbers (`multi_tensor_apply`). `fused`: one such kernel
// does the whole update. `foreach`: one for each operation, so that states are read and written again, and for Adam the
// root of the second moment is a list of its own in memory, of all parameters.
/// Kernels for one pass that reads or writes `lists` lists of tensors with so many numbers each.
std::size_t kernels_for_lists(const std::vector<std::int64_t>& numbers, std::size_t lists);

/// Shares launches out evenly among the graph's updates, all of them made by --optimizer.
void launch_together(Graph&, Optimizer, UpdateKernels);

}  // namespace plimsoll
