#include "strategies/rematerialization/rotor.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "sim/core/expects.h"
#include "strategies/common/chain_pass.h"
#include "strategies/rematerialization/rotor_exact.h"
#include "strategies/rematerialization/rotor_table.h"

namespace plimsoll {
namespace {

constexpr Bytes no_limit{std::numeric_limits<std::int64_t>::max() / 4};

/// A solver of one chain for any budget.
struct Solver {
  std::function<std::optional<ChainSequence>(Bytes)> solve;
  std::function<std::optional<double>(Bytes)> gap;
  std::vector<Bytes> budgets;  ///< ascending; from the least feasible one to store_all's peak
};

Solver table_solver(const ChainModel& model, std::int64_t slots) {
  const auto table = std::make_shared<RotorTable>(model, slots);
  Solver solver;
  solver.solve = [table](Bytes budget) { return table->solve(budget); };
  solver.gap = [table](Bytes) { return table->exact() ? std::optional(0.0) : std::nullopt; };
  const Bytes least = table->smallest_feasible();
  for (Bytes b = least; b < table->store_all_peak(); b += table->slot()) solver.budgets.push_back(b);
  solver.budgets.push_back(table->store_all_peak());
  return solver;
}

Solver exact_solver(const ChainModel& model) {
  const auto exact = std::make_shared<RotorExact>(model);
  Solver solver;
  solver.solve = [exact](Bytes budget) -> std::optional<ChainSequence> {
    std::optional<ExactPlan> plan = exact->solve(budget);
    if (!plan) return std::nullopt;
    return std::move(plan->sequence);
  };
  solver.gap = [exact](Bytes budget) -> std::optional<double> {
    const std::optional<ExactPlan> plan = exact->solve(budget);
    return plan ? std::optional(plan->gap()) : std::nullopt;
  };
  solver.budgets = exact->steps();
  return solver;
}

Solver solver_of(const ChainModel& model, const Options& options) {
  return options.text("slots") == "exact" ? exact_solver(model) : table_solver(model, options.integer("slots"));
}

Solver solver_of(const PartTask& task, const Options& options) {
  return solver_of(chain_model(task.problem, chain_part(task.problem, task.partition.parts[task.part.index])), options);
}

PlannedTape planned(const PartTask& task, const ChainSequence& sequence, std::optional<double> gap) {
  const Part& part = task.partition.parts[task.part.index];
  Tape tape = chain_tape(task.problem, task.partition, task.part, chain_part(task.problem, part), sequence);
  const TapeCost cost = tape_cost(task.problem, part, tape);
  return {std::move(tape), peak_in_flight(cost, task.in_flight), cost.makespan, gap};
}

/// The least budget: what the solver needs, or the forwards before the first stage that it plans.
Bytes least_budget(const PartTask& task, const Solver& solver) {
  const Bytes least = solver.budgets.front();
  if (chain_part(task.problem, task.partition.parts[task.part.index]).forward_only == 0) return least;
  const std::optional<ChainSequence> sequence = solver.solve(least);
  EXPECTS(sequence);
  return std::max(least, planned(task, *sequence, std::nullopt).peak);
}

/// The fastest plan found when in_flight - 1 other micro-batches each keep K bytes while one runs, for several K: the
/// running tape then has budget - (in_flight - 1) K, and must keep at most K where it awaits its output gradient,
/// which a workspace of what is left there enforces.
TapeOutcome plan_in_flight(const PartTask& task, const Options& options, Bytes budget) {
  const ChainPart part = chain_part(task.problem, task.partition.parts[task.part.index]);
  const ChainModel model = chain_model(task.problem, part);
  const std::int64_t others = task.in_flight - 1;
  const std::size_t await = model.stages() - 1;
  const Bytes room = budget - model.resident;
  constexpr std::int64_t tried = 24;
  std::optional<PlannedTape> fastest;
  for (std::int64_t k = 1; k <= tried && room > Bytes{0}; ++k) {
    const Bytes kept{room.count / (others + 1) / tried * k};
    const Bytes running = budget - others * kept;
    ChainModel capped = model;
    capped.backward_workspace[await] =
        std::max(Bytes{0}, running - model.resident - kept - model.input_gradient[await]);
    const std::optional<ChainSequence> sequence = solver_of(capped, options).solve(running);
    if (!sequence) continue;
    PlannedTape tape = planned(task, *sequence, std::nullopt);
    if (tape.peak <= budget && (!fastest || tape.makespan < fastest->makespan)) fastest = std::move(tape);
  }
  if (!fastest) return Infeasible{"no recomputation of stages fits beside what other micro-batches keep", std::nullopt};
  return *std::move(fastest);
}

}  // namespace

std::vector<TapeOutcome> rotor_tapes(const PartTask& task, const Options& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  std::vector<TapeOutcome> outcomes;
  const Part& part = task.partition.parts[task.part.index];
  if (task.in_flight > 1 && chain_part(task.problem, part).awaits) {
    for (const std::optional<Bytes>& limit : budgets) {
      outcomes.push_back(plan_in_flight(task, options, limit.value_or(no_limit)));
    }
    return outcomes;
  }
  const Solver solver = solver_of(task, options);
  const Bytes least = least_budget(task, solver);
  for (const std::optional<Bytes>& limit : budgets) {
    const Bytes budget = limit.value_or(no_limit);
    const std::optional<ChainSequence> sequence = budget < least ? std::nullopt : solver.solve(budget);
    if (!sequence) {
      outcomes.emplace_back(Infeasible{"no recomputation of stages fits", least});
      continue;
    }
    PlannedTape tape = planned(task, *sequence, solver.gap(budget));
    EXPECTS(tape.peak <= budget);
    outcomes.emplace_back(std::move(tape));
  }
  return or_plain_training(task, budgets, std::move(outcomes));
}

std::vector<Bytes> rotor_candidates(const PartTask& task, const Options& options) {
  std::vector<Bytes> budgets = solver_of(task, options).budgets;
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace plimsoll
