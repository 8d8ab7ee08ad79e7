#pragma once
// Sums of gradients of several devices: of an all-reduce in the order of the ranks, or of one that another one sent.

#include <cstddef>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// Every rank's fp32 numbers become the sum of all.
void sum_ranks(const std::vector<std::byte*>& ranks, Bytes);

/// To one's fp32 numbers the other's are added.
void add_numbers(std::byte* to, const std::byte* from, Bytes);

}  // namespace plimsoll
