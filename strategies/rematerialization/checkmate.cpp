#include "strategies/rematerialization/checkmate.h"

#include <algorithm>
#include <limits>

#include "strategies/common/op_sequence.h"
#include "strategies/rematerialization/ap_greedy.h"
#include "strategies/rematerialization/checkmate_model.h"
#include "strategies/rematerialization/checkmate_rounding.h"
#include "strategies/rematerialization/exact.h"
#include "strategies/rematerialization/greedy_recompute.h"

namespace plimsoll {
namespace {

/// What the program says for one budget.
struct Answer {
  std::optional<OpSequence> sequence;
  double bound = 0;  ///< seconds of one micro-batch
  bool impossible = false;
};

class Checkmate {
 public:
  Checkmate(const PartTask& task, const Options& options)
      : task_(task),
        model_(op_model(task)),
        formulation_(options.text("formulation") == "kappa" ? Formulation::kappa : Formulation::tight),
        limits_{.seconds = static_cast<double>(options.integer("time_limit")),
                .nodes = static_cast<int>(options.integer("nodes"))},
        known_(task) {
    known_.add(store_all_ops(task));
    add_greedy_segments(known_, model_, Points::all);
    add_greedy_recompute(known_, model_);
    Seconds once;
    for (const ModelOp& op : model_.ops) {
      once += op.ways.front().time;
      work_ +=
          op.ways.size() > 1 && op.sink ? std::min(op.ways.front().time, op.ways.back().time) : op.ways.front().time;
    }
    updates_ = known_.fastest_within(std::nullopt)->makespan.value - repeats() * once.value;
  }

  TapeOutcome solve(std::optional<Bytes> limit) {
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
    const Answer answer = ask(budget);
    PlannedTape best = *known;
    if (answer.sequence) {
      PlannedTape made = planned_ops(task_, *answer.sequence);
      if (made.peak <= budget && made.makespan < best.makespan) best = std::move(made);
    }
    return with_gap(std::move(best), std::max(answer.bound, work_.value));
  }

  std::vector<Bytes> candidates() {
    find_smallest();
    std::vector<Bytes> budgets = known_.peaks();
    budgets.push_back(least_->peak);
    return budgets;
  }

 private:
  double repeats() const { return static_cast<double>(task_.problem.micro_batches); }

  PlannedTape with_gap(PlannedTape plan, double bound) const {
    const double least = repeats() * bound + updates_;
    constexpr double rounding = 1e-9;
    const double gap = plan.makespan.value > 0 ? 1 - least / plan.makespan.value : 0;
    plan.gap = gap < rounding ? 0 : gap;
    return plan;
  }

  Answer ask(Bytes budget) const {
    const CheckmateModel program(model_, budget, formulation_);
    std::vector<double> start;
    if (const OpSequence* sequence = known_.fastest_sequence(budget)) {
      if (formulation_ == Formulation::tight) start = program.solution(*sequence).value_or(std::vector<double>{});
    }
    const MilpResult found = solve_milp(program.program(), start, limits_);
    Answer answer;
    answer.impossible = found.end == MilpResult::End::infeasible;
    answer.bound = program.seconds(found.bound).value;
    if (found.values.empty()) return answer;
    OpSequence sequence = program.plan(found.values);
    if (is_runnable(model_, sequence)) answer.sequence = std::move(sequence);
    return answer;
  }

  /// By halving, from what no order of first runs can do with less.
  void find_smallest() {
    if (least_) return;
    least_ = *known_.fastest_within(known_.smallest());
    const SmallestSchedule any = smallest_schedule(task_, model_, known_, SearchLimits{});
    Bytes low = any.proven ? any.plan.peak : least_imaginable(model_);
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

  const PartTask& task_;
  OpModel model_;
  Formulation formulation_;
  MilpLimits limits_;
  PlanPool known_;
  Seconds work_;        // of one micro-batch
  double updates_ = 0;  // seconds
  std::optional<PlannedTape> least_;
};

}  // namespace

std::vector<TapeOutcome> checkmate_tapes(const PartTask& task, const Options& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  Checkmate checkmate(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(checkmate.solve(budget));
  return outcomes;
}

std::vector<Bytes> checkmate_candidates(const PartTask& task, const Options& options) {
  return Checkmate(task, options).candidates();
}

}  // namespace plimsoll
