#pragma once
// Plans of other strategies, for strategies that are never to be worse than those.

#include <string_view>

#include "strategies/strategy.h"

namespace plimsoll {

/// The tapes of a strategy, or of several one after the other, given as on the command line, at these budgets; also at
/// the least one that it can keep, where that is more than one of them. `before`: the tape that a single one reads, or
/// null.
std::vector<PlannedTape> tapes_of(std::string_view spec, const PartTask&, std::span<const std::optional<Bytes>> budgets,
                                  const Tape* before = nullptr);

/// What they answer to each of these budgets.
std::vector<TapeOutcome> outcomes_of(std::string_view spec, const PartTask&,
                                     std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
