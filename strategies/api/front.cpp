#include "strategies/api/front.h"

#include "sim/core/tape.h"

namespace plimsoll {

bool needs_less(const Infeasible& a, const Infeasible& b) {
  return a.smallest && (!b.smallest || *a.smallest < *b.smallest);
}

std::vector<PlannedTape> tapes_among(std::vector<TapeOutcome> outcomes) {
  std::vector<PlannedTape> tapes;
  for (TapeOutcome& outcome : outcomes) {
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tapes.push_back(std::move(*tape));
  }
  return tapes;
}

std::vector<Bytes> budgets_between(Bytes least, Bytes most, std::uint32_t count) {
  std::vector<Bytes> budgets;
  for (std::uint32_t k = 0; k < count; ++k) budgets.push_back(least + range_of(most - least, {k, count}).offset);
  return budgets;
}

Bends bends_of(const std::function<TapeOutcome(std::optional<Bytes>)>& best_within) {
  constexpr std::size_t most = 100;
  FrontOf<std::size_t> front;
  std::optional<Bytes> budget;
  for (std::size_t k = 0; k < most; ++k) {
    const TapeOutcome outcome = best_within(budget);
    if (const Infeasible* none = std::get_if<Infeasible>(&outcome)) return {front.budgets(), none->smallest_is_proven};
    const auto& best = std::get<PlannedTape>(outcome);
    if (best.gap != 0.0) break;
    front.add(best.peak, best.makespan, k);
    budget = best.peak - Bytes{1};
  }
  return {front.budgets(), false};
}

RangeOfTapes asked_over_range(const Asked& asked, std::uint32_t count) {
  const std::vector<std::optional<Bytes>> ends{std::nullopt, Bytes{0}};
  std::vector<TapeOutcome> outer = asked(ends);
  PlannedTape* most = std::get_if<PlannedTape>(&outer[0]);
  if (most == nullptr) return {{}, std::get<Infeasible>(outer[0]).reason};
  const Bytes peak = most->peak;
  RangeOfTapes range{{std::move(*most)}};
  const Infeasible* none = std::get_if<Infeasible>(&outer[1]);
  if (none == nullptr || !none->smallest || *none->smallest >= peak) return range;
  const std::vector<Bytes> between = budgets_between(*none->smallest, peak, count);
  const std::vector<std::optional<Bytes>> budgets(between.begin(), between.end());
  std::ranges::move(tapes_among(asked(budgets)), std::back_inserter(range.tapes));
  return range;
}

std::vector<TapeOutcome> outcomes_of(const Plans& plans, std::span<const std::optional<Bytes>> budgets) {
  if (!plans.front.empty()) return plans.front.outcomes(budgets, plans.none_fits);
  return std::vector<TapeOutcome>(budgets.size(), Infeasible{plans.none_fits, std::nullopt});
}

std::optional<double> relative_gap(Seconds makespan, Seconds bound, double tolerance) {
  if (bound <= Seconds{0}) return makespan <= Seconds{0} ? std::optional(0.0) : std::nullopt;
  return beyond_rounding(makespan / bound - 1, tolerance);
}

bool keep_faster_outcome(TapeOutcome& own, TapeOutcome other) {
  if (auto* tape = std::get_if<PlannedTape>(&other)) {
    const auto* slower = std::get_if<PlannedTape>(&own);
    tape->gap.reset();
    if (slower != nullptr && slower->gap) {
      tape->gap = std::max(0.0, (1 + *slower->gap) * (tape->makespan / slower->makespan) - 1);
    }
  }
  return keep_better(own, std::move(other));
}

std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> own, std::vector<TapeOutcome> others) {
  EXPECTS(own.size() == others.size());
  for (std::size_t b = 0; b < own.size(); ++b) keep_faster_outcome(own[b], std::move(others[b]));
  return own;
}

}  // namespace plimsoll
