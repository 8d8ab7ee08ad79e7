#pragma once
// What an integer program of several instants proves, and the plan that its solution is (sim/bound/instants_program.h).

#include <optional>

#include "sim/bound/instants_program.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/solve/milp.h"

namespace plimsoll {

struct InstantsPlan {
  Seconds extra;                       ///< no schedule runs less again; infinite where none fits
  std::optional<OpSequence> sequence;  ///< of the best solution that was found; it may need more than the budget
  MilpResult::End end = MilpResult::End::optimal;
};

/// Seconds and memory of the limits must not be what ends it, if the same answer is to come again.
/// Only what runs less again than `known` is looked for: where there is nothing, that is the answer's extra.
InstantsPlan instants_plan(const InstantsProgram&, Bytes budget, Seconds known, const OpModel&, const MilpLimits&);

}  // namespace plimsoll
