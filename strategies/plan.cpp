#include "strategies/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/io/input_error.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

Schedule lowered(const Problem& problem, const Partition& partition, const Tape& tape) {
  std::variant<Schedule, std::string> schedule = lower(problem, partition, std::span(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  return std::move(std::get<Schedule>(schedule));
}

/// The passes that make tapes; plain training where there are only transforms.
std::vector<Pass> memory_passes(std::span<const Pass> passes) {
  std::vector<Pass> memory(passes.begin(), passes.end());
  std::erase_if(memory, [](const Pass& pass) { return pass.strategy->family == Family::transform; });
  if (memory.empty()) memory.push_back(pass_of(store_all_strategy));
  return memory;
}

/// Passes whose transforms have been applied.
bool is_for(const Problem& problem, std::span<const Pass> passes) {
  return !passes.empty() && (problem.transformed || passes.front().strategy->family != Family::transform);
}

/// A gap that is nothing but the rounding of sums is none.
std::optional<double> beyond_rounding(std::optional<double> gap) {
  constexpr double rounding = 1e-12;
  return gap && *gap < rounding ? 0 : gap;
}

}  // namespace

Problem transformed(Problem problem, std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    if (pass.strategy->family != Family::transform) break;
    std::variant<Problem, std::string> made = pass.strategy->transform(problem, pass.options);
    if (const std::string* why = std::get_if<std::string>(&made)) {
      throw InputError(fmt::format("{}: {}", pass.strategy->name, *why));
    }
    problem = std::get<Problem>(std::move(made));
    problem.transformed = true;
  }
  return problem;
}

TapePlans tape_plans(const Problem& problem, std::span<const Pass> passes,
                     std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(is_for(problem, passes));
  TapePlans plans{one_device(problem.graph, problem.micro_batches, problem.platform.devices.size()), {}};
  plans.outcomes = judged_tapes_of_passes({problem, plans.partition, PartId{0}, 1}, memory_passes(passes), budgets);
  for (TapeOutcome& outcome : plans.outcomes) {
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->gap = beyond_rounding(tape->gap);
  }
  return plans;
}

Plan plan_of(const Problem& problem, const TapePlans& plans, const PlannedTape& tape, std::optional<Bytes> budget) {
  Plan made{
      lowered(problem, plans.partition, tape.tape), tape.peak, tape.makespan, tape.gap, tape.note, tape.candidates};
  made.schedule.budget = budget;
  return made;
}

std::vector<PlanOutcome> plan(const Problem& problem, std::span<const Pass> passes,
                              std::span<const std::optional<Bytes>> budgets) {
  const TapePlans plans = tape_plans(problem, passes, budgets);
  std::vector<PlanOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (const Infeasible* none = std::get_if<Infeasible>(&plans.outcomes[b])) {
      outcomes.emplace_back(*none);
    } else {
      outcomes.emplace_back(plan_of(problem, plans, std::get<PlannedTape>(plans.outcomes[b]), budgets[b]));
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
  judge(problem, memory);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}, 1};
  std::vector<Bytes> budgets;
  for (const Pass& pass : memory) {
    if (pass.strategy->candidates == nullptr) continue;
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
