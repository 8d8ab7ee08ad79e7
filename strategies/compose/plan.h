#pragma once
// A pass pipeline applied to a problem: Partition, then a Tape a part, then a Schedule, for every budget.

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "strategies/compose/levels/planned_parts.h"
#include "strategies/compose/transformed.h"

namespace plimsoll {

using PlanOutcome = std::variant<Plan, Infeasible>;

/// Outcomes for every budget, in order, of which plan_of makes one schedule at a time. Throws as plan does.
std::vector<PartsOutcome> plan_parts(const Problem&, std::span<const Pass>,
                                     std::span<const std::optional<Bytes>> budgets);

/// One outcome a budget, in order; unset: unlimited. Throws InputError where a strategy cannot treat the problem at all
/// (a chain strategy on a graph, a platform without a route that a copy needs).
std::vector<PlanOutcome> plan(const Problem&, std::span<const Pass>, std::span<const std::optional<Bytes>> budgets);

/// The outcome for one budget.
PlanOutcome plan(const Problem&, std::span<const Pass>, std::optional<Bytes> budget);

/// Budgets that give every point of the front of time against memory, ascending.
std::vector<Bytes> front_budgets(const Problem&, std::span<const Pass>);

}  // namespace plimsoll
