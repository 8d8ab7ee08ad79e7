#pragma once
// Attention in blocks (ring attention): ranks that share out the positions of queries and of keys hand their keys and
// values round, and each computes with the block that is there while the next one comes.
// Source: Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023. Sums
// are in the type of what is summed, and gradients of keys and values go round as these do.

#include <string>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// Names, in attributes of ops: the axis whose ranks hand blocks round, the dimension that these are shares of, and
/// which block an op computes with; and of which op a block or a merge is. Block k of a rank is that of the rank k
/// places before it.
inline constexpr const char *ring_key = "ring", *around_key = "around", *block_key = "block",
                            *block_of_key = "block_of";

/// Kind of an op that adds what blocks make: pairs of inputs, the first of which it changes.
inline constexpr const char* merge_kind = "merge_blocks";

/// What the ops of a block are called beside the op that they are of.
std::string block_name(const std::string& op, std::uint32_t block);

/// The same graph of a rank with n ops in place of each one that has `ring` and `around`: with the block of keys that
/// the rank itself has, then with those that come from the rank before it. Each has 1/n of the work, which is what all
/// do where all pairs of queries and keys count, and where ranks have two pieces from either end of causal queries.
///  - Inputs with the dimension go round: n - 1 shifts beside the block that is computed. At most two blocks are there
///    beside the rank's own.
///  - Outputs without it are merged behind each block but the first (of a softmax, with what its sums say).
///  - Outputs with it, the gradients, are merged with what has come from the rank before and handed on: n shifts, the
///    last one home.
Graph with_ring_blocks(Graph, const Mesh&);

}  // namespace plimsoll
