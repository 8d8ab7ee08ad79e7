#pragma once
// Runs of stages solved into several options each: what to keep between their forward and their backward, and what the
// backward recomputes. Equal runs are solved once.
// Source: Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont, "Rockmate: an efficient, fast, automatic and generic tool
// for re-materialization in PyTorch", ICML 2023. There an integer program over a block's ops finds the options; here,
// where a block is a run of stages, it is rotor (rotor_exact.h) at several budgets.

#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/block_table.h"

namespace plimsoll {

/// Stages [first, end) of a chain. `before[k]` and `after[k]` are option k's steps until the output gradient is awaited
/// and from then on, with the chain's numbers of stages.
struct SolvedBlock {
  std::size_t first, end;
  std::vector<ChainSequence> before, after;
  Block block;  ///< for the table of blocks
};

/// Blocks of `size` stages, the last of them perhaps shorter, and one of the loss. At most 2 * `options` options a
/// block.
std::vector<SolvedBlock> solved_blocks(const ChainModel&, std::size_t size, std::size_t options);

/// The chain's sequence that the table's steps stand for.
ChainSequence sequence_of(const std::vector<SolvedBlock>&, const std::vector<BlockStep>&);

}  // namespace plimsoll
