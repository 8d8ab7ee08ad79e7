#pragma once
// Keep the first input of every segment and recompute the rest, one segment at a time.
// Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, section 4; segments are cut
// as in PyTorch's checkpoint_sequential: n / segments stages each, the last one longer and saved at once.

#include <cstddef>

#include "strategies/models/chain_sequence.h"

namespace plimsoll {

/// round(sqrt(n)), where n counts the stages without the loss.
std::size_t chen_segments(std::size_t stages);

/// `stages` includes the loss; `segments` is cut down to the number of stages before it.
ChainSequence chen_sequence(std::size_t stages, std::size_t segments);

}  // namespace plimsoll
