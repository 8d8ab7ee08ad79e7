#pragma once
// The strategy `checkmate_lp`: Checkmate's relaxation with two-phase rounding (checkmate_rounding.h). The relaxation is
// solved at fixed levels of memory, whatever the budget, and all rounded plans form one pool: so less memory is never
// faster, and a plan made for another level may serve a budget better than its own.

#include <string>

#include "strategies/api/strategy.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

struct RoundingEffort {
  std::int64_t levels = 10, samples = 0, seed = 1, seconds = 60;
};

/// Adds the rounded plans of all levels between the largest working set of an op and the pool's fastest plan. Which
/// limit ended that early, if one did.
std::string add_rounded(PlanPool&, const OpModel&, const RoundingEffort&);

}  // namespace plimsoll
