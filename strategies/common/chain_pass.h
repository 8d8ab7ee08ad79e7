#pragma once
// From a planner's sequence for a part of a chain to a tape with its promise.

#include <span>
#include <string_view>
#include <vector>

#include "strategies/common/chain_part.h"
#include "strategies/common/tape_cost.h"
#include "strategies/strategy.h"

namespace plimsoll {

/// A tape that does not depend on the budget.
std::vector<TapeOutcome> fixed_tape(const PartTask&, const Tape&, std::string_view name,
                                    std::span<const std::optional<Bytes>> budgets);

/// A sequence that does not depend on the budget, such as Chen's: feasible from its own peak on.
std::vector<TapeOutcome> fixed_sequence(const PartTask&, const ChainSequence&, std::string_view name,
                                        std::span<const std::optional<Bytes>> budgets);

/// The peak of the device while `in_flight` micro-batches are between forward and backward, the running one included.
Bytes peak_in_flight(const TapeCost&, std::uint32_t in_flight);

}  // namespace plimsoll
