#pragma once
// Ways to run a block of a graph: what it keeps between its forwards and its backward, and what it makes again.

#include "strategies/rematerialization/rockmate/graph_blocks.h"

namespace plimsoll {

/// Every op once, in the part's order.
OpSequence every_op(const OpModel&);

/// Plans of a small part: that one, and one for each set of values that it may evict where there are few of them, else
/// those of greedy eviction.
std::vector<OpSequence> leaf_sequences(const OpModel&);

/// A plan of a block with what its two phases take (block_table.h). Without a waiting op all of it is one phase.
struct PricedSequence {
  OpSequence sequence;
  BlockOption cost;
};

/// The plans on two fronts, of time against what is kept and of time against what is needed, `count` of each at most.
std::vector<PricedSequence> best_options(const BlockPart&, const std::vector<OpSequence>&, std::size_t count);

}  // namespace plimsoll
