#pragma once
// What is in memory before a training iteration: the same numbers for the same names, everywhere.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "validate/networks/network.h"

namespace plimsoll {

/// Parameters at random, scaled by how many inputs they sum; scales 1, shifts and biases small; states, gradients and
/// running means 0, running variances 1. Another seed, other random numbers.
std::vector<std::byte> initial_value(const Tensor&, std::uint64_t seed = 0);

/// An input of one micro-batch: numbers around 0, or tokens below `vocabulary`.
std::vector<std::byte> input_value(const Tensor&, std::uint32_t micro_batch, std::int64_t vocabulary);

/// The network's input for every micro-batch of the batch of that number; those of slices one after the other.
std::vector<std::vector<std::byte>> input_values(const Network&, std::uint32_t micro_batches, std::uint32_t batch = 0);

}  // namespace plimsoll
