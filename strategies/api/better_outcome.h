#pragma once
// Which of two answers to one budget is the better one.

#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// Whether the first is better: it fits and the other does not, or both fit and it is faster, or neither fits and it
/// needs less. False for equal ones.
bool is_better(const TapeOutcome&, const TapeOutcome&);

/// For each budget the better one of two answers, the first of equals.
void keep_better(std::vector<TapeOutcome>& best, std::vector<TapeOutcome> others);

/// The same for a strategy that is never to be slower than another: a gap is to the best of the first strategy's class,
/// of which the others' plans need not be.
std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> own, std::vector<TapeOutcome> others);

}  // namespace plimsoll
