#pragma once
// The strategy `revolve_hetero`: Revolve for stages of unequal times and sizes, where memory stands for slots.

#include "strategies/api/strategy.h"
#include "strategies/models/chain_model.h"
#include "strategies/rematerialization/rotor/block_table.h"

namespace plimsoll {

/// Every stage a block with one option, which only the last stage of a sub-chain may use.
std::vector<Block> revolve_blocks(const ChainModel&);

}  // namespace plimsoll
