#pragma once
// Ways to run a block of a graph: what it keeps between its forwards and its backward, and what it makes again.

#include <functional>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
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

// Rockmate on graphs: the graph is cut into blocks, each is solved into options, and the recursion over blocks
// (block_table.h) combines them. A block that is large is cut again, so that it is solved in the same way; blocks of
// one shape are solved once.
// Source: Gusak et al., "HiRemate: Hierarchical Approach for Efficient Re-materialization of Neural Networks", ICML
// 2025, for the hierarchy; there an integer program combines options, here it is the recursion.

struct BlockEffort {
  std::size_t block = 12;    ///< forwards a block at most, where the graph can be cut
  std::size_t options = 10;  ///< of a block: budgets, counted twice
  std::int64_t slots = 500;  ///< of memory between blocks
};

struct BlockCount {
  std::size_t solved = 0, met = 0;  ///< shapes of blocks; blocks
};

/// Takes plans of the whole part for many budgets, plain training among them.
BlockCount block_sequences(const OpModel&, const BlockEffort&, const std::function<void(const OpSequence&)>& take);

}  // namespace plimsoll
