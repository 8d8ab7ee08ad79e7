#pragma once
// Which of two answers to one budget is the better one.

#include "strategies/strategy.h"

namespace plimsoll {

/// What fits, then what is faster; of two that do not fit, the one that needs less. Equal ones: no.
bool is_better(const TapeOutcome&, const TapeOutcome&);

}  // namespace plimsoll
