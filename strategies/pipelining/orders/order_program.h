#pragma once
// The best order of a pipeline of one part a rank with split backwards, as an integer program for CBC.
// Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, appendix G; bounds of our own on every pass's end.

#include <cstdint>
#include <span>

#include "strategies/pipelining/cuts/part_costs.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/solve/milp.h"

namespace plimsoll {

struct ProgramOrder {
  PipelineOrder order;
  double bound = 0;  ///< no order's longest rank is shorter, transfers being free to overtake each other
  MilpResult::End end = MilpResult::End::optimal;
  bool is_too_large = false;  ///< the program was not asked: more work than nodes can limit
};

/// The order whose longest rank, from its first forward to its last step, is shortest; never longer than `start`'s,
/// which holds the limits: bytes that a rank keeps after a forward.
ProgramOrder program_order(const PartCosts&, std::uint32_t micro_batches, const PipelineOrder& start,
                           std::span<const std::int64_t> limits, const MilpLimits&);

}  // namespace plimsoll
