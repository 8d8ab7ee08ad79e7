#include "strategies/rematerialization/checkmate_solver.h"

#include <algorithm>
#include <utility>

#include "strategies/rematerialization/checkmate_rounding.h"
#include "strategies/rematerialization/exact.h"

namespace plimsoll {

CheckmateSolver::CheckmateSolver(const PartTask& task, OpModel model, CheckmateEffort effort, PlanPool known)
    : task_(task), model_(std::move(model)), effort_(effort), known_(std::move(known)) {
  Seconds once;
  for (const ModelOp& op : model_.ops) {
    once += op.ways.front().time;
    Seconds least = op.ways.front().time;
    if (op.ways.size() > 1 && op.sink) least = std::min(least, op.ways.back().time);
    for (const OpAlternative& way : op.alternatives) least = std::min(least, way.time);
    work_ += least;
  }
  updates_ = planned_ops(task, store_all_ops(task)).makespan.value - repeats() * once.value;
}

TapeOutcome CheckmateSolver::solve(std::optional<Bytes> limit) {
  const Bytes budget = limit.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 4});
  const PlannedTape* known = known_.fastest_within(budget);
  if (known == nullptr) {
    find_smallest();
    if (budget < least_->peak) {
      return Infeasible{"no schedule that keeps the order of first runs was found", least_->peak};
    }
    known = &*least_;
  }
  if (known->makespan.value <= repeats() * work_.value + updates_) return with_gap(*known, work_.value);
  if (model_.ops.size() > effort_.most_ops) return with_gap(*known, work_.value);
  const Answer answer = ask(budget);
  PlannedTape best = *known;
  if (answer.sequence) {
    PlannedTape made = planned_ops(task_, *answer.sequence);
    if (made.peak <= budget && made.makespan < best.makespan) best = std::move(made);
  }
  return with_gap(std::move(best), std::max(answer.bound, work_.value));
}

std::vector<Bytes> CheckmateSolver::candidates() {
  find_smallest();
  std::vector<Bytes> budgets = known_.peaks();
  budgets.push_back(least_->peak);
  return budgets;
}

PlannedTape CheckmateSolver::with_gap(PlannedTape plan, double bound) const {
  const double least = repeats() * bound + updates_;
  constexpr double rounding = 1e-9;
  const double gap = plan.makespan.value > 0 ? 1 - least / plan.makespan.value : 0;
  plan.gap = gap < rounding ? 0 : gap;
  return plan;
}

CheckmateSolver::Answer CheckmateSolver::ask(Bytes budget) const {
  const CheckmateModel program(model_, budget, effort_.formulation);
  std::vector<double> start;
  if (const OpSequence* sequence = known_.fastest_sequence(budget)) {
    if (effort_.formulation == Formulation::tight) {
      start = program.solution(*sequence).value_or(std::vector<double>{});
    }
  }
  const MilpResult found = solve_milp(program.program(), start, effort_.limits);
  Answer answer;
  answer.bound = program.seconds(found.bound).value;
  if (found.values.empty()) return answer;
  OpSequence sequence = program.plan(found.values);
  if (is_runnable(model_, sequence)) answer.sequence = std::move(sequence);
  return answer;
}

/// What no order of first runs can do with less.
Bytes CheckmateSolver::least_possible() const {
  const auto has_alternatives = [](const ModelOp& op) { return !op.alternatives.empty(); };
  if (std::ranges::none_of(model_.ops, has_alternatives)) {
    const SmallestSchedule any = smallest_schedule(task_, model_, known_, SearchLimits{});
    return any.proven ? any.plan.peak : least_imaginable(model_);
  }
  OpModel least = model_;
  for (ModelOp& op : least.ops) {
    for (const OpAlternative& way : op.alternatives) {
      op.accumulate_workspace = std::min(op.accumulate_workspace, way.workspace);
      for (OpWay& own : op.ways) own.workspace = std::min(own.workspace, way.workspace);
    }
  }
  return least_imaginable(least);
}

/// By halving.
void CheckmateSolver::find_smallest() {
  if (least_) return;
  least_ = *known_.fastest_within(known_.smallest());
  if (model_.ops.size() > effort_.most_ops) return;
  Bytes low = least_possible();
  Bytes next = low;
  while (low < least_->peak) {
    const Answer answer = ask(next);
    std::optional<PlannedTape> made;
    if (answer.sequence) made = planned_ops(task_, *answer.sequence);
    if (made && made->peak <= next) {
      least_ = std::move(made);
    } else {
      low = next + Bytes{1};
    }
    next = Bytes{low.count + (least_->peak.count - low.count) / 2};
  }
}

}  // namespace plimsoll
