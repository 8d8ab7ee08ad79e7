#pragma once
// How many kernels a device launches for all updates of an iteration, and what they move.

#include <vector>

#include "sim/core/graph.h"
#include "sim/core/optimizer.h"
#include "sim/core/schedule.h"

namespace plimsoll {

// PyTorch's optimizers work on lists of parameters. A kernel takes so many tensors as its arguments have room for, the
// fewer the more lists it reads, and so many chunks of 65,536 numbers (`multi_tensor_apply`). `fused`: one such kernel
// does the whole update. `foreach`: one for each operation, so that states are read and written again, and for Adam the
// root of the second moment is a list of its own in memory, of all parameters. `megatron`: the fused update, and around
// it what Megatron-LM's optimizer does by lists (megatron/optimizer/optimizer.py, 2021): gradients of fp16 are copied
// to fp32, divided by the loss's scale and searched for infinities; their norm is taken and they are clipped; the fp32
// parameters are copied to narrow ones, and gradients set to zero. Each update has its gradients of fp16 in fp32 in
// memory. Parameters without an fp32 copy have the norm, the clipping and the zeros only.
/// Kernels for one pass that reads or writes `lists` lists of tensors with so many numbers each.
std::size_t kernels_for_lists(const std::vector<std::int64_t>& numbers, std::size_t lists);

/// Shares launches out evenly among the graph's updates, all of them made by --optimizer. Each group of parameters has
/// lists and kernels of its own.
void launch_together(Graph&, const Optimizers&, UpdateKernels);

/// Adds to the updates an exponential moving average of each parameter, the last of its states, `average of NAME`. It
/// is renewed behind the update, by lists of averages and parameters: the average is read and written, and the
/// parameter, or its fp32 copy, is read.
void keep_averages(Graph&, States, UpdateKernels);

/// Adds to the updates what clipping by the norm of all gradients takes: each update reads its gradients twice more and
/// writes them once; kernels for the norms and for scaling go through one list each. After launch_together().
void count_clipping(Graph&, UpdateKernels);

/// Of a rank's graph, whose updates launch_together() has seen before they were shared out: the roots that `foreach`
/// keeps are of the rank's own shares.
void keep_own_roots(Graph&, const Optimizers&, UpdateKernels);

}  // namespace plimsoll
