#pragma once
// Keep the first input of every segment and recompute the rest, one segment at a time.
// Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, section 4; segments are cut
// as in PyTorch's checkpoint_sequential: n / segments stages each, the last one longer and saved at once.

#include <cstddef>

#include "sim/io/quantity.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_model.h"
#include "strategies/models/chain_sequence.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {

/// round(sqrt(n)), where n counts the stages without the loss.
std::size_t chen_segments(std::size_t stages);

/// `stages` includes the loss; `segments` is cut down to the number of stages before it.
ChainSequence chen_sequence(std::size_t stages, std::size_t segments);

// The strategy `chen_greedy`: segments are closed as soon as what they leave for the backward exceeds b bytes.
// Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, algorithm 3, where b is
// searched for; here over every b that changes the segments.

struct GreedySegments {
  std::vector<Segment> segments;
  std::optional<Bytes> next;  ///< the least larger b that gives other segments
};

/// A segment ends with the stage whose saved bytes take it above b; the last one is not recomputed.
GreedySegments greedy_segments(const ChainModel&, Bytes b);

/// Every b that gives segments of its own, ascending; of more than 1000 an even selection with both ends.
std::vector<Bytes> greedy_parameters(const ChainModel&);

}  // namespace plimsoll
