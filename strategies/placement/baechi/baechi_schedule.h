#pragma once
// Baechi's list scheduling within memory: one channel a processor for all that it sends and receives, bytes that are
// there as long as somebody has yet to read them, and perhaps processors that wait for a favourite child.

#include <optional>
#include <span>

#include "strategies/placement/lists/list_schedulers.h"

namespace plimsoll {

/// How much of each processor's memory a schedule has taken at most, by its own account.
struct BaechiSchedule {
  ListSchedule made;
  std::vector<std::int64_t> peak;  ///< by processor
};

/// Of all ops that are ready and all processors with room for them the pair that starts first, of equals the op of the
/// smallest number. `favourite` is empty, or by node the reader that its processor waits for, or no_node. Nothing where
/// at some time no processor has room for any op and none is running.
std::optional<BaechiSchedule> baechi_schedule(const OpDag&, const Machine&, std::span<const std::uint32_t> favourite);

}  // namespace plimsoll
