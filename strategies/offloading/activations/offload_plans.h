#pragma once
// What offloading strategies have in common that plan for all budgets at once.

#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {

/// The plans of a strategy, whatever the budget.
using PlansFunction = TapePool (*)(const PartTask&, const Options&, const OffloadModel&);

/// The fastest plan for each budget, with its gap to the fluid bound.
std::vector<TapeOutcome> best_plans(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                    const Tape* before, PlansFunction);

/// Budgets at which the fastest plan of plain training changes.
std::vector<Bytes> peaks_of_plans(const PartTask&, const Options&, PlansFunction);

}  // namespace plimsoll
