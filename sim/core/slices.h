#pragma once
// Micro-batches that are slices of sequences: attention on one slice reads keys and values of those before it, and its
// backward adds to their gradients.

#include <cstdint>
#include <optional>

#include "sim/core/graph.h"

namespace plimsoll {

/// Into how many slices sequences are cut: micro-batch i is slice i modulo that of its sequence. 1 where they are not.
std::uint32_t sequence_slices(const Graph&);

/// What the op also reads of the slices before its own: an input or an output of it, which lies with its slice until
/// its backward is over, with room for the gradients that the backwards of later slices add. So the backward of a slice
/// comes after those of all later ones. Nothing for an op whose slices do not depend on each other.
std::optional<TensorId> attended_by(const Graph&, const Op&);

/// Says so of the ops of a sliced graph.
void set_slices(Graph&, std::uint32_t slices);
void set_attended(Op&, const Tensor&);

}  // namespace plimsoll
