#pragma once
// SAPP's distribution of layers where all are of one kind: then devices share nothing but the number of layers, and how
// many one can take within a bound on its time and its memory is found by itself. Optimal, without an integer program.

#include "strategies/pipelining/planners/sapp.h"

namespace plimsoll {

SappOutcome plan_sapp_of_one_body(const SappProblem&);

}  // namespace plimsoll
