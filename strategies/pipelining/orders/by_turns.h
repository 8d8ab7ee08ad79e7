#pragma once
// What 1f1b and eager_1f1b share: one forward and one backward by turns, stages on one device or several.

#include <cstdint>

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {

/// With `ahead` times the forwards to warm up that 1f1b has, unless the option `in_flight` says otherwise.
std::vector<PartitionOutcome> by_turns(const Problem&, const TurnOptions&, std::string_view strategy,
                                       std::uint32_t ahead, std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
