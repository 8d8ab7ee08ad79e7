#pragma once
// A pass pipeline applied to a problem: Partition, then a Tape a part, then a Schedule, for every budget.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "strategies/compose/passes.h"
#include "strategies/hybrid/built.h"

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

/// The same by what was decided before, one after the other for the passes that decide (Problem::decisions): nothing is
/// searched for. Or because of which of them it cannot be, and why: the key `[0].cuts[3].op`, say.
std::variant<Problem, CannotBuild> transformed(Problem, std::span<const Pass>, std::span<const Decisions>);

/// How many of the passes decide.
std::size_t deciding(std::span<const Pass>);

/// Whether the backwards of the problem that these passes are asked about must be split (ProblemOptions::backward).
Backward backward_for(std::span<const Pass>);
/// Whether its stages' saved tensors must be apart (ProblemOptions::inner).
Inner inner_for(std::span<const Pass>);

/// How many micro-batches of the transformed problem these passes make of each.
std::uint32_t slices_of(std::span<const Pass>);

/// Replicas among which hybrid strategies share out the micro-batches of a problem, on so many devices.
std::uint32_t replicas_of(std::span<const Pass>, std::size_t devices);

/// What plan_of makes a schedule of: a partition, the tape of each part, and what is promised of them.
struct PlannedParts {
  std::shared_ptr<const Partition> partition;
  std::vector<Tape> tapes;
  Bytes peak;  ///< of the fullest device
  Seconds makespan;
  std::optional<double> gap;
  std::string note = {};
  std::vector<Candidate> candidates = {};
};

using PartsOutcome = std::variant<PlannedParts, Infeasible>;

/// Outcomes for every budget, in order, of which plan_of makes one schedule at a time. Throws as plan does.
std::vector<PartsOutcome> plan_parts(const Problem&, std::span<const Pass>,
                                     std::span<const std::optional<Bytes>> budgets);

Plan plan_of(const Problem&, const PlannedParts&, std::optional<Bytes> budget);

/// One outcome a budget, in order; unset: unlimited. Throws InputError where a strategy cannot treat the problem at all
/// (a chain strategy on a graph, a platform without a route that a copy needs).
std::vector<PlanOutcome> plan(const Problem&, std::span<const Pass>, std::span<const std::optional<Bytes>> budgets);

/// The outcome for one budget.
PlanOutcome plan(const Problem&, std::span<const Pass>, std::optional<Bytes> budget);

/// Budgets that give every point of the front of time against memory, ascending.
std::vector<Bytes> front_budgets(const Problem&, std::span<const Pass>);

}  // namespace plimsoll
