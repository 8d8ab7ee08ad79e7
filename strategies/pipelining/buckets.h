#pragma once
// Of strategies whose parts have copies on several devices: which of their gradients are all-reduced together.

#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/pipelining/line_options.h"

namespace plimsoll {

/// The same partitions with buckets of that size.
std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome>, const LineOptions&);

}  // namespace plimsoll
