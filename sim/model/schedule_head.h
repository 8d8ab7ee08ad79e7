// What a schedule says of the problem that it solves.
#pragma once

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Trace, platform, micro-batches, updates and gradients of the problem.
void state_problem(Schedule&, const Problem&);

}  // namespace plimsoll
