#pragma once
// What a network's stages hand on, made once and kept: the inputs of those behind them.

#include <cstddef>
#include <vector>

#include "validate/networks/network.h"

namespace plimsoll {

/// Inputs of the network, by micro-batch: those that it has by rule or, where its first stages are stored, what their
/// forwards make of theirs.
std::vector<std::vector<std::byte>> inputs_of(const Network&, std::uint32_t micro_batches);

}  // namespace plimsoll
