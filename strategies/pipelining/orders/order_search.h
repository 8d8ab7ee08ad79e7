#pragma once
// Makes an order of a pipeline's turns shorter by moving single turns, within limits of memory: simulated annealing.

#include <cstdint>
#include <span>

#include "strategies/pipelining/orders/order_times.h"

namespace plimsoll {

/// What is to be short: the whole iteration, or the longest rank from its first turn to its last one.
enum class Shorter { makespan, longest };

double length_of(const OrderTimes&, Shorter);

/// Never longer than `start`; no rank keeps more than its limit in bytes after a forward, which `start` must hold.
/// `moves`: how many are tried; the same input gives the same order.
PipelineOrder search_order(const PartCosts&, std::uint32_t micro_batches, const PipelineOrder& start,
                           std::span<const std::int64_t> limits, Shorter, std::size_t moves);

}  // namespace plimsoll
