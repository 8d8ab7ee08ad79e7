#pragma once
// Plans of other strategies, for strategies that are never to be worse than those.

#include "strategies/compose/parts/passes.h"

namespace plimsoll {

/// The tapes of a strategy, or of several one after the other, at these budgets; also at the least one that they can
/// keep, where that is more than one of them.
std::vector<PlannedTape> known_tapes(std::span<const Pass>, const PartTask&,
                                     std::span<const std::optional<Bytes>> budgets);

/// The same of one strategy that reads the tape `before`.
std::vector<PlannedTape> known_tapes(const Pass&, const PartTask&, std::span<const std::optional<Bytes>> budgets,
                                     const Tape& before);

}  // namespace plimsoll
