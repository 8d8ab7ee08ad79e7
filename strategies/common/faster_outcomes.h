#pragma once
// Two strategies' answers to the same budgets, for a strategy that is never to be slower than another.

#include <vector>

#include "strategies/strategy.h"

namespace plimsoll {

/// For each budget the faster plan, the first of equally fast ones; where there is none, the smaller of the smallest
/// budgets. A gap is to the best of the first strategy's class, of which the second's plans need not be.
std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> first, std::vector<TapeOutcome> second);

}  // namespace plimsoll
