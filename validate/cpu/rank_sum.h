#pragma once
// The sum of an all-reduce, in the order of the ranks.

#include <cstddef>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// Every rank's fp32 numbers become the sum of all.
void sum_ranks(const std::vector<std::byte*>& ranks, Bytes);

}  // namespace plimsoll
