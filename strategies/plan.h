#pragma once
// A pass pipeline applied to a problem: Partition, then a Tape a part, then a Schedule, for every budget.

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "strategies/passes.h"

namespace plimsoll {

/// A schedule and what its planner promises of it.
struct Plan {
  Schedule schedule;
  Bytes peak;  ///< of the fullest device
  Seconds makespan;
  std::optional<double> gap;
  std::string note = {};                   ///< as of PlannedTape
  std::vector<Candidate> candidates = {};  ///< of a strategy that chooses among others
};

using PlanOutcome = std::variant<Plan, Infeasible>;

/// The problem as the transforms among the passes change it; itself where there are none. Throws InputError where one
/// cannot. All below is asked about that problem, and so are check, bounds and replay of the schedules.
Problem transformed(Problem, std::span<const Pass>);

/// Tapes for every budget, which plan_of makes a schedule of one at a time.
struct TapePlans {
  Partition partition;
  std::vector<TapeOutcome> outcomes;  ///< one a budget, in order
};

/// Throws as plan does.
TapePlans tape_plans(const Problem&, std::span<const Pass>, std::span<const std::optional<Bytes>> budgets);

/// The plan of a tape of these.
Plan plan_of(const Problem&, const TapePlans&, const PlannedTape&, std::optional<Bytes> budget);

/// One outcome a budget, in order; unset: unlimited. Throws InputError where a strategy cannot treat the problem at all
/// (a chain strategy on a graph, a platform without a route that a copy needs).
std::vector<PlanOutcome> plan(const Problem&, std::span<const Pass>, std::span<const std::optional<Bytes>> budgets);

/// The outcome for one budget.
PlanOutcome plan(const Problem&, std::span<const Pass>, std::optional<Bytes> budget);

/// Budgets that give every point of the front of time against memory, ascending.
std::vector<Bytes> front_budgets(const Problem&, std::span<const Pass>);

}  // namespace plimsoll
