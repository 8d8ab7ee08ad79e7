#pragma once
// Orders by list scheduling: ranks take turns as they come to be possible, by a rule, within limits of memory, and what
// comes of it is the order.

#include <cstdint>
#include <optional>
#include <span>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// What a rank takes of the turns that it can take.
struct ListRule {
  bool forwards_first = false;  ///< before backwards, where both could start at a time
  bool fill_gaps = false;       ///< with W also where it makes the rank late for its next turn
  double patience = 0;  ///< how long a rank waits for a turn that it would rather take, in forwards of the first part
};

/// Micro-batches in order in every part; of forwards and of backwards the one that is further on first. No rank keeps
/// more than its limit in bytes after a forward, and none takes a micro-batch with which those it has could not end.
/// Nothing where a limit is too small for one micro-batch.
std::optional<PipelineOrder> list_order(const PartCosts&, std::span<const std::uint32_t> rank_of,
                                        std::uint32_t micro_batches, bool weights_apart,
                                        std::span<const std::int64_t> limits, const ListRule&);

}  // namespace plimsoll
