#include "strategies/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

void judge(const Problem& problem, std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    if (pass.strategy->chains_only && !problem.chain) {
      throw InputError(fmt::format("strategy '{}' works on chain traces only, and '{}' is a graph trace",
                                   pass.strategy->name, problem.graph.name));
    }
  }
}

Schedule lowered(const Problem& problem, const Partition& partition, const Tape& tape) {
  std::variant<Schedule, std::string> schedule = lower(problem, partition, std::span(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  return std::move(std::get<Schedule>(schedule));
}

}  // namespace

std::vector<PlanOutcome> plan(const Problem& problem, std::span<const Pass> passes,
                              std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(!passes.empty());
  judge(problem, passes);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}, 1};
  std::vector<TapeOutcome> tapes = passes[0].strategy->tapes(task, passes[0].options, budgets, nullptr);
  for (const Pass& pass : passes.subspan(1)) {
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const PlannedTape* before = std::get_if<PlannedTape>(&tapes[b]);
      if (before == nullptr) continue;
      tapes[b] = pass.strategy->tapes(task, pass.options, budgets.subspan(b, 1), &before->tape).front();
    }
  }
  std::vector<PlanOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (const Infeasible* none = std::get_if<Infeasible>(&tapes[b])) {
      outcomes.emplace_back(*none);
      continue;
    }
    const auto& tape = std::get<PlannedTape>(tapes[b]);
    Plan made{lowered(problem, partition, tape.tape), tape.peak, tape.makespan, tape.gap};
    made.schedule.budget = budgets[b];
    outcomes.emplace_back(std::move(made));
  }
  return outcomes;
}

std::vector<Bytes> front_budgets(const Problem& problem, std::span<const Pass> passes) {
  EXPECTS(!passes.empty());
  judge(problem, passes);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}, 1};
  std::vector<Bytes> budgets;
  for (const Pass& pass : passes) {
    if (pass.strategy->candidates == nullptr) continue;
    const std::vector<Bytes> more = pass.strategy->candidates(task, pass.options);
    budgets.insert(budgets.end(), more.begin(), more.end());
  }
  if (budgets.empty()) {  // one schedule: its peak
    const std::optional<Bytes> unlimited;
    const PlanOutcome whole = plan(problem, passes, std::span(&unlimited, 1)).front();
    if (const Plan* made = std::get_if<Plan>(&whole)) budgets.push_back(made->peak);
  }
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace plimsoll
