#include "strategies/compose/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "strategies/compose/levels/issued_plans.h"
#include "strategies/compose/levels/plan_on_devices.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {
namespace {

/// The pass that makes partitions; null where all runs on one device.
const Pass* partitioning(std::span<const Pass> passes) {
  const auto found = std::ranges::find_if(passes, [](const Pass& pass) { return pass.strategy->partitions(); });
  return found == passes.end() ? nullptr : &*found;
}

/// What updates on the device take with their workspaces, whatever ran before them: planners do not see it. Who moves
/// parameters or states plans the updates itself.
Bytes least_for_updates(const PartTask& task, std::span<const Pass> memory) {
  if (std::ranges::any_of(memory, [](const Pass& pass) { return pass.strategy->moves_parameters(); })) return {};
  return tape_cost(task.problem, task.part(), tape_of_ops(task.problem.graph, store_all_ops(task))).at_updates;
}

/// Whether the tape itself runs updates, or says where their states are: its planner, which a portfolio may have taken,
/// has counted what they take.
bool plans_updates(const Graph& graph, const Tape& tape) {
  return !tape.end.empty() || !tape.homes.empty() || std::ranges::any_of(tape.actions, [&](const Action& action) {
    return action.kind == ActionKind::run && graph[action.op].phase == Phase::update;
  });
}

/// The outcome of planners within a budget, for a problem whose updates take so much.
TapeOutcome with_updates(const Graph& graph, TapeOutcome outcome, Bytes updates, std::optional<Bytes> budget) {
  if (Infeasible* none = std::get_if<Infeasible>(&outcome)) {
    if (none->smallest) none->smallest = std::max(*none->smallest, updates);
    return outcome;
  }
  if (plans_updates(graph, std::get<PlannedTape>(outcome).tape)) return outcome;
  if (budget && *budget < updates) return Infeasible{"updates with their workspaces need more", updates};
  auto& tape = std::get<PlannedTape>(outcome);
  tape.peak = std::max(tape.peak, updates);
  return outcome;
}

std::vector<PartsOutcome> on_one_device(const Problem& problem, std::span<const Pass> memory,
                                        std::span<const std::optional<Bytes>> budgets) {
  if (has_pinned_ops(problem.graph)) {
    throw InputError(fmt::format("ops of '{}' are pinned to the host: begin with a placement, such as one_device",
                                 problem.graph.name));
  }
  const auto partition = std::make_shared<const Partition>(
      one_device(problem.graph, problem.micro_batches, problem.platform.devices.size()));
  const PartTask task{problem, *partition, PartId{0}};
  std::vector<TapeOutcome> tapes = judged_tapes_of_passes(task, memory, budgets);
  const Bytes updates = least_for_updates(task, memory);
  std::vector<PartsOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    TapeOutcome outcome = with_updates(problem.graph, std::move(tapes[b]), updates, budgets[b]);
    if (Infeasible* none = std::get_if<Infeasible>(&outcome)) {
      outcomes.emplace_back(std::move(*none));
      continue;
    }
    auto& tape = std::get<PlannedTape>(outcome);
    PlannedParts& made = std::get<PlannedParts>(outcomes.emplace_back(PlannedParts{
        partition, {}, tape.peak, tape.makespan, tape.gap, std::move(tape.note), std::move(tape.candidates)}));
    made.tapes.push_back(std::move(tape.tape));
  }
  return outcomes;
}

/// Of planners that know nothing of the evaluation: nothing of an iteration runs beside it.
std::vector<PartsOutcome> plan_beside_evaluation(Problem problem, std::span<const Pass> passes,
                                                 std::span<const std::optional<Bytes>> budgets) {
  const Problem whole = problem;
  problem.evaluation.reset();
  std::vector<PartsOutcome> outcomes = plan_parts(problem, passes, budgets);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (Infeasible* none = std::get_if<Infeasible>(&outcomes[b]); none == nullptr) {
      outcomes[b] = with_evaluation(whole, std::get<PlannedParts>(std::move(outcomes[b])), budgets[b]);
    } else if (none->smallest) {
      const PartsOutcome least = plan_parts(problem, passes, std::span(&none->smallest, 1)).front();
      if (const PlannedParts* made = std::get_if<PlannedParts>(&least)) {
        const PartsOutcome needs = with_evaluation(whole, *made, std::nullopt);
        const Infeasible* more = std::get_if<Infeasible>(&needs);
        none->smallest = more != nullptr ? *more->smallest : std::get<PlannedParts>(needs).peak;
      }
    }
  }
  return outcomes;
}

}  // namespace

std::vector<PartsOutcome> plan_parts(const Problem& problem, std::span<const Pass> passes,
                                     std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(is_for(problem, passes));
  if (problem.evaluation) return plan_beside_evaluation(problem, passes, budgets);
  const std::vector<Pass> memory = memory_passes(passes);
  const Pass* several = partitioning(passes);
  std::vector<PartsOutcome> outcomes = plans_with_hosts(problem, passes, budgets, [&](const Problem& timed) {
    if (several != nullptr) return plan_on_devices(timed, *several, memory, budgets);
    return timed.mesh ? plan_by_simulation(timed, memory, budgets) : on_one_device(timed, memory, budgets);
  });
  for (PartsOutcome& outcome : outcomes) {
    PlannedParts* made = std::get_if<PlannedParts>(&outcome);
    if (made != nullptr && made->gap) made->gap = beyond_rounding(*made->gap);
  }
  return outcomes;
}

std::vector<PlanOutcome> plan(const Problem& problem, std::span<const Pass> passes,
                              std::span<const std::optional<Bytes>> budgets) {
  const std::vector<PartsOutcome> parts = plan_parts(problem, passes, budgets);
  std::vector<PlanOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (const Infeasible* none = std::get_if<Infeasible>(&parts[b])) {
      outcomes.emplace_back(*none);
    } else {
      outcomes.emplace_back(plan_of(problem, std::get<PlannedParts>(parts[b]), budgets[b]));
    }
  }
  return outcomes;
}

PlanOutcome plan(const Problem& problem, std::span<const Pass> passes, std::optional<Bytes> budget) {
  return std::move(plan(problem, passes, std::span(&budget, 1)).front());
}

std::vector<Bytes> front_budgets(const Problem& problem, std::span<const Pass> passes) {
  EXPECTS(is_for(problem, passes));
  const std::vector<Pass> memory = memory_passes(passes);
  if (const Pass* several = partitioning(passes)) return front_budgets_on_devices(problem, *several, memory);
  if (problem.mesh) return front_budgets_by_simulation(problem, memory);
  judge(problem, memory);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}};
  std::vector<Bytes> budgets;
  for (const Pass& pass : memory) {
    if (!pass.strategy->names_candidates()) continue;
    const std::vector<Bytes> more = pass.strategy->candidates(task, pass.options);
    budgets.insert(budgets.end(), more.begin(), more.end());
  }
  if (budgets.empty()) {  // one schedule: its peak
    const PlanOutcome whole = plan(problem, passes, std::nullopt);
    if (const Plan* made = std::get_if<Plan>(&whole)) budgets.push_back(made->peak);
  }
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace plimsoll
