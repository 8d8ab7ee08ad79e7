#include "strategies/rematerialization/exact/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/api/better_outcome.h"
#include "strategies/api/deadline.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/cuts/ap_greedy.h"
#include "strategies/rematerialization/exact/exact_search.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/rotor/cheaper_plans.h"

namespace plimsoll {
namespace {

struct ExactOptions : LimitOptions {
  ExactOptions() { time_limit = 10; }
};

using End = SearchResult::End;

constexpr Bytes no_exact_limit{std::numeric_limits<std::int64_t>::max() / 4};

class Exact {
 public:
  Exact(const PartTask& task, const ExactOptions& options)
      : task_(task),
        model_(op_model(task)),
        limits_{.states = options.states, .seconds = static_cast<double>(options.time_limit)},
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

  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) {
    std::vector<Searched> searched;
    std::vector<std::optional<Bytes>> open;
    for (const std::optional<Bytes>& budget : budgets) {
      searched.push_back(search(budget.value_or(no_exact_limit)));
      if (!searched.back().ended) open.push_back(budget);
    }
    const std::vector<CheaperPlan> cheaper = ask_cheaper(open);
    std::vector<TapeOutcome> outcomes;
    std::size_t next = 0;
    for (Searched& each : searched) {
      outcomes.push_back(each.ended ? std::move(each.outcome) : better_of(std::move(each), cheaper[next++]));
    }
    return outcomes;
  }

  std::vector<Bytes> candidates() {
    find_smallest(limits_);
    Bytes least = least_->plan.peak;
    const std::optional<Bytes> nothing{Bytes{0}};
    const std::vector<CheaperPlan> none = ask_cheaper(std::span(&nothing, least_->proven() ? 0 : 1));
    for (const CheaperPlan& plan : none) {
      if (const auto* why = std::get_if<Infeasible>(&plan.outcome)) least = std::min(least, *why->smallest);
    }
    std::vector<Bytes> budgets = heuristics_.peaks();
    const Bytes most = budgets.back();
    constexpr std::int64_t steps = 32;
    for (std::int64_t k = 0; k < steps; ++k) {
      budgets.push_back(Bytes{least.count + (most - least).count / steps * k});
    }
    return budgets;
  }

 private:
  /// What the search and the heuristics that it begins with say to a budget.
  struct Searched {
    bool ended = false;  ///< else a limit stopped it, and `outcome` is what is known
    TapeOutcome outcome;
    double bound = 0;     ///< seconds of one micro-batch
    std::string stopped;  ///< by which limit
  };

  Searched search(Bytes limit) {
    const Deadline deadline(limits_.seconds);
    const PlannedTape* known = heuristics_.fastest_within(limit);
    Searched result{false, Infeasible{"no schedule at all fits", std::nullopt}, work_, {}};
    if (known == nullptr) {
      find_smallest({limits_.states, deadline.left() / 2});
      result.outcome = Infeasible{"no schedule at all fits", least_->plan.peak, least_->proven()};
      result.stopped = stopped(least_->end);
      result.ended = least_->proven();
      if (limit < least_->below) return result;
      std::get<Infeasible>(result.outcome).reason = "no schedule that fits was found";
      if (least_->plan.peak <= limit) known = &least_->plan;
    }
    if (known != nullptr) {
      result.outcome = with_gap(*known, work_);
      result.ended = std::get<PlannedTape>(result.outcome).gap == 0.0;
    }
    if (!is_searchable(model_)) {
      result.stopped = stopped(End::out_of_states);
      return result;
    }
    const SearchResult found = fastest_schedule(model_, limit, {limits_.states, deadline.left()});
    result.bound = std::max(work_, found.bound.value);
    if (found.end == End::solved) {
      PlannedTape made = planned_ops(task_, found.sequence);
      EXPECTS(made.peak <= limit);
      made.gap = 0;
      return {true, std::move(made), 0, {}};
    }
    if (found.end != End::impossible) {
      result.stopped = stopped(found.end);
    } else if (known == nullptr) {
      std::get<Infeasible>(result.outcome).reason = "no schedule at all fits";
    }
    return result;
  }

  std::string stopped(End by) const {
    if (!is_searchable(model_)) {
      return fmt::format("not searched: {} values and ops that must run, the search takes {}", state_bits(model_),
                         most_state_bits);
    }
    if (by == End::out_of_time) return fmt::format("the search stopped after {} s (time_limit)", limits_.seconds);
    return fmt::format("the search stopped after {} states (states)", limits_.states);
  }

  std::vector<CheaperPlan> ask_cheaper(std::span<const std::optional<Bytes>> budgets) const {
    return budgets.empty() ? std::vector<CheaperPlan>{} : cheaper_plans(task_, budgets, limits_.seconds);
  }

  TapeOutcome better_of(Searched searched, const CheaperPlan& cheaper) const {
    const bool is_cheaper = is_better(cheaper.outcome, searched.outcome);
    const Infeasible* nothing = std::get_if<Infeasible>(&searched.outcome);
    const std::string reason = nothing == nullptr ? std::string() : nothing->reason;
    TapeOutcome best = is_cheaper ? cheaper.outcome : std::move(searched.outcome);
    if (Infeasible* none = std::get_if<Infeasible>(&best)) {
      none->reason = fmt::format("{}; {}", reason, searched.stopped);
      none->smallest_is_proven = *none->smallest <= least_->below;
      return best;
    }
    PlannedTape plan = with_gap(std::get<PlannedTape>(std::move(best)), searched.bound);
    plan.note =
        searched.stopped + "; " + (plan.note.empty() ? "" : plan.note + "; ") +
        (is_cheaper ? fmt::format("the plan is that of {}", cheaper.made_by) : "no cheaper method has a better plan");
    return plan;
  }

  double repeats() const { return static_cast<double>(task_.problem.micro_batches); }

  PlannedTape with_gap(PlannedTape plan, double bound) const {
    const double least = repeats() * bound + updates_;
    constexpr double rounding = 1e-12;
    const double gap = plan.makespan.value > 0 ? 1 - least / plan.makespan.value : 0;
    plan.gap = gap < rounding ? 0 : gap;
    return plan;
  }

  void find_smallest(const SearchLimits& limits) {
    if (!least_) least_ = smallest_schedule(task_, model_, heuristics_, limits);
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
  const Deadline deadline(limits.seconds);
  Bytes low = least_imaginable(model);
  SmallestSchedule least{*known.fastest_within(known.smallest()), low, End::solved};
  if (!is_searchable(model)) {
    if (low < least.plan.peak) least.end = End::out_of_states;
    return least;
  }
  while (low < least.plan.peak) {
    const Bytes middle{low.count + (least.plan.peak.count - low.count) / 2};
    const SearchResult found = any_schedule(model, middle, {limits.states, deadline.left()});
    if (found.end == End::solved) {
      least.plan = planned_ops(task, found.sequence);
      EXPECTS(least.plan.peak <= middle);
    } else {
      low = middle + Bytes{1};
      if (found.end != End::impossible) least.end = found.end;
      if (least.proven()) least.below = low;
    }
  }
  return least;
}

namespace {

constexpr auto exact_options = options_of<ExactOptions>(
    option_of<&LimitOptions::states>({
        .name = "states",
        .least = 1,
        .most = 100'000'000,
        .help = "stop the search for one budget after this many states (repeatable, unlike a time limit); the answer "
                "is then the best plan known, with its proven gap",
    }),
    option_of<&LimitOptions::time_limit>({
        .name = "time_limit",
        .least = 1,
        .most = 86'400,
        .values = "a whole number of seconds from 1 to 86400",
        .help = "stop the search for one budget after this time; the cheaper strategies run to their end, Checkmate's "
                "relaxations for as long again",
    }));

std::vector<TapeOutcome> exact_tapes(const PartTask& task, const ExactOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return or_plain_training(task, budgets, Exact(task, options).outcomes(budgets));
}

std::vector<Bytes> exact_candidates(const PartTask& task, const ExactOptions& options) {
  std::vector<Bytes> budgets = Exact(task, options).candidates();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo exact_strategy{
    .name = "exact",
    .family = Family::rematerialization,
    .summary = "the fastest of all recomputations of a graph or chain, by search over sets of resident values",
    .source = "own; A* after Hart, Nilsson, Raphael, 1968",
    .options = exact_options,
    .kind = TapeStrategy{.tapes = by_options<exact_tapes>, .candidates = by_options<exact_candidates>},
    .effort = {.stages = 40, .ops = 80, .trials = {.problems = 100, .stride = 3, .stages = 5, .ops = 8}},
};

}  // namespace plimsoll
