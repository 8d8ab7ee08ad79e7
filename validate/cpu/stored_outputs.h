#pragma once
// What a network's stages hand on, made once and kept: the inputs of those behind them.

#include <cstddef>
#include <vector>

#include "validate/networks/network.h"

namespace plimsoll {

/// The network whose input is the first of all: itself, or the one whose outputs are stored.
const Network& first_of(const Network&);

/// Inputs of the network, by micro-batch: `given`, those of first_of() or, where first stages are stored, what their
/// forwards make of these.
std::vector<std::vector<std::byte>> inputs_of(const Network&, std::vector<std::vector<std::byte>> given);

}  // namespace plimsoll
