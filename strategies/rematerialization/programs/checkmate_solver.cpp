#include "strategies/rematerialization/programs/checkmate_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "strategies/rematerialization/exact/exact.h"
#include "strategies/rematerialization/programs/checkmate_rounding.h"

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
  const Deadline deadline(effort_.limits.seconds);
  const Bytes budget = limit.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 4});
  const PlannedTape* known = known_.fastest_within(budget);
  if (known == nullptr) {
    find_smallest(deadline);
    if (budget < least_->peak) {
      const bool proven = least_stopped_.empty();
      return Infeasible{
          "no schedule that keeps the order of first runs was found" + (proven ? std::string() : "; " + least_stopped_),
          least_->peak, proven};
    }
    known = &*least_;
  }
  if (known->makespan.value <= repeats() * work_.value + updates_) return with_gap(*known, work_.value);
  const Answer answer = ask(budget, deadline.left());
  PlannedTape best = *known;
  if (answer.sequence) {
    PlannedTape made = planned_ops(task_, *answer.sequence);
    if (made.peak <= budget && made.makespan < best.makespan) best = std::move(made);
  }
  best = with_gap(std::move(best), std::max(answer.bound, work_.value));
  best.note = answer.stopped;
  return best;
}

std::vector<Bytes> CheckmateSolver::candidates() {
  find_smallest(Deadline(effort_.limits.seconds));
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

CheckmateSolver::Answer CheckmateSolver::ask(Bytes budget, double seconds) const {
  if (model_.ops.size() > effort_.most_ops) {
    return {.stopped =
                fmt::format("no integer program: {} ops, more than most_ops={}", model_.ops.size(), effort_.most_ops),
            .refused = true};
  }
  const CheckmateModel program(model_, budget, effort_.formulation);
  if (!program.is_complete()) {
    return {.stopped = fmt::format("no integer program: that of {} ops has more than {} nonzeros", model_.ops.size(),
                                   most_nonzeros),
            .refused = true};
  }
  std::vector<double> start;
  if (const OpSequence* sequence = known_.fastest_sequence(budget)) {
    if (effort_.formulation == Formulation::tight) {
      start = program.solution(*sequence).value_or(std::vector<double>{});
    }
  }
  MilpLimits limits = effort_.limits;
  limits.seconds = seconds;
  const MilpResult found = solve_milp(program.program(), start, limits);
  Answer answer;
  answer.bound = program.seconds(found.bound).value;
  answer.infeasible = found.end == MilpResult::End::infeasible;
  answer.stopped = why_stopped(found.end, effort_.limits);
  if (found.values.empty()) return answer;
  OpSequence sequence = program.plan(found.values);
  if (is_runnable(model_, sequence)) answer.sequence = std::move(sequence);
  return answer;
}

/// What no order of first runs can do with less.
Bytes CheckmateSolver::least_possible(const Deadline& deadline) const {
  const auto has_alternatives = [](const ModelOp& op) { return !op.alternatives.empty(); };
  if (std::ranges::none_of(model_.ops, has_alternatives)) {
    SearchLimits limits;
    limits.seconds = deadline.left() / 4;  // the programs need the rest
    return smallest_schedule(task_, model_, known_, limits).below;
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
void CheckmateSolver::find_smallest(const Deadline& deadline) {
  if (least_) return;
  least_ = *known_.fastest_within(known_.smallest());
  Bytes low = least_possible(deadline);
  Bytes next = low;
  while (low < least_->peak) {
    const Answer answer = ask(next, deadline.left() / 2);
    if (!answer.infeasible && !answer.stopped.empty()) least_stopped_ = answer.stopped;
    constexpr double too_little = 0.1;  // seconds
    if (answer.refused || deadline.left() < too_little) return;
    if (answer.sequence) {
      PlannedTape made = planned_ops(task_, *answer.sequence);
      if (made.peak <= next) {
        least_ = std::move(made);
        next = Bytes{low.count + (least_->peak.count - low.count) / 2};
        continue;
      }
    }
    low = next + Bytes{1};
    next = Bytes{low.count + (least_->peak.count - low.count) / 2};
  }
}

}  // namespace plimsoll
