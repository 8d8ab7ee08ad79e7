#pragma once
// Plans as the tests of strategies ask for them.

#include <optional>
#include <string_view>

#include "strategies/compose/plan.h"

namespace plimsoll {

PlanOutcome plan_one(const Problem&, std::string_view spec, std::optional<Bytes> budget = {});

/// It must be feasible.
Plan planned(const Problem&, std::string_view spec, std::optional<Bytes> budget = {});

/// As `planned`, after `judge`, on the problem that the spec's transforms leave.
Plan judged(const Problem&, std::string_view spec, std::optional<Bytes> budget = {});

/// What an infeasible budget names.
Bytes smallest(const Problem&, std::string_view spec);

/// Legal by check(), as promised when simulated, within the budget, never below a lower bound.
void judge(const Problem&, const Plan&, std::optional<Bytes> budget);

}  // namespace plimsoll
