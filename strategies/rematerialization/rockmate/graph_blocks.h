#pragma once
// A training graph as a row of blocks: forwards between two cuts, and the backward ops that go with them. A block alone
// is a small graph of its own, in which one op stands for all that happens between its forwards and its backward.

#include <optional>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/rotor/block_table.h"

namespace plimsoll {

/// Between two forwards, and between two ops behind the last forward: what is after `forward` and before `backward`
/// is the later side.
struct GraphCut {
  std::size_t forward = 0, backward = 0;
};

/// Cuts into blocks of at most `size` forwards where that can be: none where a later op overwrites what an earlier one
/// made. Of all such sets of cuts one where the fewest bytes cross. The part's two ends are included. An op
/// `waiting` stands for later blocks: what it makes are their gradients.
std::vector<GraphCut> cut_graph(const OpModel&, std::size_t size, std::optional<std::size_t> waiting = {});

/// A block as a part of its own. What is there before its forwards takes no memory in it and stays.
struct BlockPart {
  OpModel model;                            ///< ops and values numbered anew, op i having the id i
  std::vector<std::optional<OpId>> origin;  ///< of its ops; unset: stands for others
  std::optional<std::size_t> waiting;       ///< the op that stands for all later blocks, if there are any
  OpSequence bare;                          ///< the forwards that make what later blocks read, and keep nothing else
  std::vector<Bytes> input_shares;          ///< of the input, what is part of the input of blocks 0, 1, ..
  Bytes input;                              ///< what earlier forwards made and the block or a later one reads
  Bytes held;    ///< made by later blocks and still read when its backward begins, parameter gradients included
  Bytes passes;  ///< the part of `held` that its backward does not read
};

std::vector<BlockPart> block_parts(const OpModel&, const std::vector<GraphCut>&);

/// Equal for parts with the same ops on values of the same sizes, with about the same times.
std::vector<std::int64_t> shape_of(const OpModel&);

}  // namespace plimsoll
