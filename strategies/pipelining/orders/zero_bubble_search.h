#pragma once
// The heuristic of Qi et al. 2024 for orders with split backwards: which forwards to run ahead, and which weight
// gradients to put into which gap, within a limit of memory.

#include <cstdint>
#include <optional>
#include <span>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// The best of the heuristic's eight variants by the time of the longest rank, from its first forward to its last
/// step; part g runs on rank g. No rank keeps more than its limit in bytes after a forward. O(parts x
/// micro-batches). Nothing where a limit is too small for one micro-batch.
std::optional<PipelineOrder> zero_bubble_search(const PartCosts&, std::uint32_t micro_batches,
                                                std::span<const std::int64_t> limits);

}  // namespace plimsoll
