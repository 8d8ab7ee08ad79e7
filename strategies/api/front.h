#pragma once
// Plans by memory and time: of several those that no other one is as fast as within as little. And answers to
// budgets: which of two is the better one.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

/// Each budget gets the fastest that fits, so that less memory is never faster; of equally fast ones the smallest, of
/// equal ones the first.
template <class Plan, class Time = Seconds>
class FrontOf {
 public:
  /// Whether one of them is as fast within as little.
  bool beats(Bytes needs, Time makespan) const {
    const auto above = std::ranges::upper_bound(kept_, needs, {}, &Kept::needs);
    return above != kept_.begin() && std::prev(above)->makespan <= makespan;
  }
  /// Kept unless another is as fast within as little. For budgets from `needs` on.
  void add(Bytes needs, Time makespan, Plan plan) {
    if (beats(needs, makespan)) return;
    const auto from = std::ranges::lower_bound(kept_, needs, {}, &Kept::needs);
    auto end = from;
    while (end != kept_.end() && end->makespan >= makespan) ++end;
    kept_.insert(kept_.erase(from, end), {needs, makespan, std::move(plan)});
  }
  /// For budgets from its peak on, or from what it needs where only the dates of copies make the peak less.
  void add(Plan plan) {
    const Bytes needs = plan.peak;
    add(std::move(plan), needs);
  }
  void add(Plan plan, Bytes needs) {
    EXPECTS(plan.peak <= needs);
    const Seconds makespan = plan.makespan;
    add(needs, makespan, std::move(plan));
  }
  void add(std::optional<Plan> plan) {
    if (plan) add(*std::move(plan));
  }
  void add(FrontOf others) {
    for (Kept& each : others.kept_) add(each.needs, each.makespan, std::move(each.plan));
  }

  bool empty() const { return kept_.empty(); }

  /// The least budget that one of them fits.
  Bytes least() const {
    EXPECTS(!kept_.empty());
    return kept_.front().needs;
  }

  /// The fastest within the budget (unset: unlimited); null where none fits.
  const Plan* at(std::optional<Bytes> budget) const {
    const auto above = budget ? std::ranges::upper_bound(kept_, *budget, {}, &Kept::needs) : kept_.end();
    return above == kept_.begin() ? nullptr : &std::prev(above)->plan;
  }

  /// For each budget what `planned` makes of the fastest; `reason` where none fits.
  template <class Planned = std::identity>
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason,
                                    const Planned& planned = {}) const {
    std::vector<TapeOutcome> outcomes;
    for (const std::optional<Bytes>& budget : budgets) {
      if (const Plan* plan = at(budget)) {
        outcomes.emplace_back(std::in_place_type<PlannedTape>, planned(*plan));
      } else {
        outcomes.emplace_back(Infeasible{std::string(reason), least()});
      }
    }
    return outcomes;
  }

  /// At which the fastest changes, ascending.
  std::vector<Bytes> budgets() const {
    std::vector<Bytes> budgets;
    for (const Kept& kept : kept_) budgets.push_back(kept.needs);
    return budgets;
  }

  /// By rising memory.
  std::vector<Plan> plans() && {
    std::vector<Plan> plans;
    for (Kept& kept : kept_) plans.push_back(std::move(kept.plan));
    return plans;
  }

 private:
  struct Kept {
    Bytes needs;
    Time makespan;
    Plan plan;
  };
  std::vector<Kept> kept_;  // needs rise, makespans fall
};

using Front = FrontOf<PlannedTape>;

/// Whether the first says of less than the other that it is enough.
bool needs_less(const Infeasible&, const Infeasible&);

/// Whether the first is better: it fits and the other does not, or both fit and it is faster, or neither fits and it
/// needs less. False for equal ones.
template <class Plan>
bool is_better(const std::variant<Plan, Infeasible>& a, const std::variant<Plan, Infeasible>& b) {
  const Plan *one = std::get_if<Plan>(&a), *other = std::get_if<Plan>(&b);
  if (one != nullptr && other != nullptr) return one->makespan < other->makespan;
  if (one != nullptr || other != nullptr) return one != nullptr;
  return needs_less(std::get<Infeasible>(a), std::get<Infeasible>(b));
}

/// The better one of two answers, the first of equals; whether that is the other one.
template <class Plan>
bool keep_better(std::variant<Plan, Infeasible>& best, std::variant<Plan, Infeasible> other) {
  if (!is_better(other, best)) return false;
  best = std::move(other);
  return true;
}

/// Likewise for each budget.
template <class Plan>
void keep_better(std::vector<std::variant<Plan, Infeasible>>& best,
                 std::vector<std::variant<Plan, Infeasible>> others) {
  EXPECTS(best.size() == others.size());
  for (std::size_t b = 0; b < best.size(); ++b) keep_better(best[b], std::move(others[b]));
}

/// Likewise of two plans, of which each may be none.
template <class Plan>
bool keep_faster(std::optional<Plan>& best, std::optional<Plan> other) {
  if (!other || (best && !(other->makespan < best->makespan))) return false;
  best = std::move(other);
  return true;
}

/// The plan, if it is one.
template <class Plan>
std::optional<Plan> plan_in(std::variant<Plan, Infeasible> outcome) {
  Plan* plan = std::get_if<Plan>(&outcome);
  return plan == nullptr ? std::nullopt : std::optional(std::move(*plan));
}

/// Without those that are none.
std::vector<PlannedTape> tapes_among(std::vector<TapeOutcome>);

/// So many budgets from the least on, evenly apart, all below the most.
std::vector<Bytes> budgets_between(Bytes least, Bytes most, std::uint32_t count);

/// The budgets at which the answer of a search that is the best of its class within each budget changes, ascending:
/// each is what the best for a byte less than the one before needs. Down to an answer that is not proven to be the
/// best, if there is one: then they are not all, as where there are too many.
struct Bends {
  std::vector<Bytes> budgets;
  bool are_all = false;
};
Bends bends_of(const std::function<TapeOutcome(std::optional<Bytes>)>& best_within);

/// What a strategy plans that plans the same whatever the budget. `none_fits` says why a budget is below all of them,
/// or why there are none.
struct Plans {
  Front front;
  std::string none_fits;
};
std::vector<TapeOutcome> outcomes_of(const Plans&, std::span<const std::optional<Bytes>> budgets);

/// The kind of such a strategy, from its one function: of its options, behind the tape of the pass before.
template <class Struct, Plans (*plans)(const PartTask&, const Struct&, const Tape* before)>
constexpr TapeStrategy planned_at_once(TapeStrategy rest = {}) {
  rest.tapes = [](const PartTask& task, const Options& options, std::span<const std::optional<Bytes>> budgets,
                  const Tape* before) { return outcomes_of(plans(task, options.as<Struct>(), before), budgets); };
  rest.candidates = [](const PartTask& task, const Options& options) {
    return plans(task, options.as<Struct>(), nullptr).front.budgets();
  };
  return rest;
}

/// Over all of its range: with all the memory that is wanted, then at so many budgets from the least one on for which
/// there is a tape. None, for the reason, where there is none at all.
struct RangeOfTapes {
  std::vector<PlannedTape> tapes;
  std::string reason = {};
};
RangeOfTapes asked_over_range(const Asked&, std::uint32_t count);

/// How far a time is from a bound on it: time / bound - 1. None that is nothing but rounding, and nothing where the
/// bound is no time.
std::optional<double> relative_gap(Seconds makespan, Seconds bound, double tolerance = sum_tolerance);

/// The same for a strategy that is never to be slower than another: a gap is to the best of the first strategy's class,
/// of which the others' plans need not be.
bool keep_faster_outcome(TapeOutcome& own, TapeOutcome other);
std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> own, std::vector<TapeOutcome> others);

}  // namespace plimsoll
