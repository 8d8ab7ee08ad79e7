#pragma once
// The strategy `greedy_recompute`: from plain training on, evict the values that free most bytes for each second of
// recomputation while memory is fullest, again and again. For graphs of thousands of ops.
// Source: memory saved per second (MSPS) as the measure: Peng et al., "Capuchin", ASPLOS 2020; here applied to the
// simulated fullest moment, with the cost counted anew after every step.

#include <functional>

#include "strategies/api/strategy.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {

/// Takes the plan after every step. A step evicts 1 / `steps` of the first plan's memory, and one value at least.
void greedy_sequences(const OpModel&, std::int64_t steps, const std::function<void(const OpSequence&)>& take);

void add_greedy_recompute(PlanPool&, const OpModel&);

}  // namespace plimsoll
