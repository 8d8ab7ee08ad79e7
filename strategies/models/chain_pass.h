#pragma once
// From a planner's sequence for a part of a chain to a tape with its promise.

#include <span>
#include <string_view>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {

/// Runs every op once and keeps all that it saves. On one device this is plain training: one call of autograd.
Tape plain_tape(const PartTask&);

/// The outcomes of a planner that runs stages one by one, or plain training where it fits and is faster, or as fast
/// with less memory: its workspaces are others. `smallest` is no more than what plain training needs.
std::vector<TapeOutcome> or_plain_training(const PartTask&, std::span<const std::optional<Bytes>> budgets,
                                           std::vector<TapeOutcome>);

/// The budget from which on plain training fits.
Bytes plain_training_peak(const PartTask&);

/// A tape that does not depend on the budget.
std::vector<TapeOutcome> fixed_tape(const PartTask&, const Tape&, std::string_view name,
                                    std::span<const std::optional<Bytes>> budgets);

/// A sequence that does not depend on the budget, such as Chen's: feasible from its own peak on.
std::vector<TapeOutcome> fixed_sequence(const PartTask&, const ChainSequence&, std::string_view name,
                                        std::span<const std::optional<Bytes>> budgets);

/// The peak of the device while other micro-batches of the part keep what they keep between their pieces. More than it
/// is where not all of them do at once.
Bytes peak_in_flight(const TapeCost&, const PartTask&);

}  // namespace plimsoll
