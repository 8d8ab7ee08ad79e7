#pragma once
// Rockmate on graphs: the graph is cut into blocks, each is solved into options, and the recursion over blocks
// (block_table.h) combines them. A block that is large is cut again, so that it is solved in the same way; blocks of
// one shape are solved once.
// Source: Gusak et al., "HiRemate: Hierarchical Approach for Efficient Re-materialization of Neural Networks", ICML
// 2025, for the hierarchy; there an integer program combines options, here it is the recursion.

#include <functional>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

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
