#pragma once
// What offloading strategies have in common that plan for all budgets at once.

#include <functional>

#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {

/// The plans of a strategy of a part, whatever the budget.
using PlansFunction = std::function<TapePool(const OffloadModel&)>;

/// The fastest plan for each budget, with its gap to the fluid bound.
std::vector<TapeOutcome> best_plans(const PartTask&, const OffloadOptions&,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before,
                                    const PlansFunction&);

/// Budgets at which the fastest plan of plain training changes.
std::vector<Bytes> peaks_of_plans(const PartTask&, const OffloadOptions&, const PlansFunction&);

}  // namespace plimsoll
