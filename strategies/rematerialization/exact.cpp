#include "strategies/rematerialization/exact.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "sim/core/expects.h"
#include "strategies/common/op_sequence.h"
#include "strategies/rematerialization/ap_greedy.h"
#include "strategies/rematerialization/exact_search.h"
#include "strategies/rematerialization/greedy_recompute.h"

namespace plimsoll {
namespace {

class Exact {
 public:
  Exact(const PartTask& task, const Options& options)
      : task_(task),
        model_(op_model(task)),
        limits_{.states = static_cast<std::size_t>(options.integer("states")),
                .seconds = static_cast<double>(options.integer("time_limit"))},
        heuristics_(task) {
    heuristics_.add(store_all_ops(task));
    add_greedy_segments(heuristics_, model_, Points::all);
    add_greedy_recompute(heuristics_, model_);
    Seconds once;
    for (const ModelOp& op : model_.ops) once += op.ways.front().time;
    const auto all = static_cast<double>(task.problem.micro_batches);
    updates_ = heuristics_.fastest_within(std::nullopt)->makespan.value - all * once.value;
    for (const ModelOp& op : model_.ops) {
      Seconds least = op.ways.front().time;
      if (op.ways.size() > 1 && op.sink) least = std::min(least, op.ways[1].time);
      work_ += least.value;
    }
  }

  TapeOutcome solve(std::optional<Bytes> budget) {
    const Bytes limit = budget.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 4});
    const PlannedTape* known = heuristics_.fastest_within(limit);
    if (known == nullptr) {
      find_smallest();
      if (limit < least_->plan.peak) {
        return Infeasible{least_->proven ? "no schedule at all fits" : "the search found no schedule that fits",
                          least_->plan.peak};
      }
      known = &least_->plan;
    }
    if (!is_searchable(model_)) return with_gap(*known, work_);
    const SearchResult found = fastest_schedule(model_, limit, limits_);
    if (found.end != SearchResult::End::solved) return with_gap(*known, std::max(work_, found.bound.value));
    PlannedTape made = planned_ops(task_, found.sequence);
    EXPECTS(made.peak <= limit);
    made.gap = 0;
    return made;
  }

  std::vector<Bytes> candidates() {
    find_smallest();
    std::vector<Bytes> budgets = heuristics_.peaks();
    const Bytes most = budgets.back();
    constexpr std::int64_t steps = 32;
    for (std::int64_t k = 0; k < steps; ++k) {
      budgets.push_back(Bytes{least_->plan.peak.count + (most - least_->plan.peak).count / steps * k});
    }
    return budgets;
  }

 private:
  PlannedTape with_gap(PlannedTape plan, double bound) const {
    const double least = static_cast<double>(task_.problem.micro_batches) * bound + updates_;
    plan.gap = plan.makespan.value > 0 ? std::max(0.0, 1 - least / plan.makespan.value) : 0;
    return plan;
  }

  void find_smallest() {
    if (!least_) least_ = smallest_schedule(task_, model_, heuristics_, limits_);
  }

  const PartTask& task_;
  OpModel model_;
  SearchLimits limits_;
  PlanPool heuristics_;
  double updates_ = 0, work_ = 0;  // seconds; work of one micro-batch
  std::optional<SmallestSchedule> least_;
};

}  // namespace

SmallestSchedule smallest_schedule(const PartTask& task, const OpModel& model, const PlanPool& known,
                                   const SearchLimits& limits) {
  SmallestSchedule least{*known.fastest_within(known.smallest()), false};
  if (!is_searchable(model)) return least;
  least.proven = true;
  const auto start = std::chrono::steady_clock::now();
  Bytes low = least_imaginable(model);
  while (low < least.plan.peak) {
    const Bytes middle{low.count + (least.plan.peak.count - low.count) / 2};
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const SearchResult found = any_schedule(model, middle, {limits.states, limits.seconds - passed.count()});
    if (found.end == SearchResult::End::solved) {
      least.plan = planned_ops(task, found.sequence);
      EXPECTS(least.plan.peak <= middle);
    } else {
      least.proven &= found.end == SearchResult::End::impossible;
      low = middle + Bytes{1};
    }
  }
  return least;
}

std::vector<TapeOutcome> exact_tapes(const PartTask& task, const Options& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  Exact exact(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(exact.solve(budget));
  return outcomes;
}

std::vector<Bytes> exact_candidates(const PartTask& task, const Options& options) {
  return Exact(task, options).candidates();
}

}  // namespace plimsoll
