#include "strategies/rematerialization/rotor/rotor_ladder.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

namespace {

// Closer together where memory is scarce: there it saves the most time.
constexpr std::int64_t rungs = 2048;

}  // namespace

RotorLadder::RotorLadder(const ChainModel& model, GridPoints points)
    : model_{model}, bound_{model, GridRounding::down, points}, estimate_{model, GridRounding::nearest, points} {
  bound_.drop_parts();
  const ChainCost all = evaluate(model, store_all_sequence(model.stages()));
  work_ = all.time;
  const Bytes least = estimate_.smallest_feasible();
  for (std::int64_t k = 0; k < rungs; ++k) {
    const double part = static_cast<double>(k * k) / static_cast<double>(rungs * rungs);
    const Bytes budget = least + Bytes{static_cast<std::int64_t>(part * static_cast<double>((all.peak - least).count))};
    if (budget < all.peak && (rungs_.empty() || budget > rungs_.back().budget))
      rungs_.push_back({budget, std::nullopt});
  }
}

Seconds RotorLadder::least_recompute(Bytes budget) const {
  return bound_.recompute(budget).value();
}

Seconds RotorLadder::time(const Rung& rung) const {
  if (!rung.time) {
    const ChainCost cost = evaluate(model_, estimate_.follow(rung.budget));
    EXPECTS(cost.legal() && cost.peak <= rung.budget);
    rung.time = cost.time;
  }
  return *rung.time;
}

// The rungs below are followed only as far as they may be faster.
const RotorLadder::Rung& RotorLadder::best_rung(Bytes budget) const {
  auto rung = std::ranges::upper_bound(rungs_, budget, {}, &Rung::budget);
  EXPECTS(rung != rungs_.begin());
  const Rung* best = &*--rung;
  while (rung != rungs_.begin()) {
    --rung;
    if (work_ + least_recompute(rung->budget) >= time(*best)) break;
    if (time(*rung) < time(*best)) best = &*rung;
  }
  return *best;
}

ChainSequence RotorLadder::solve(Bytes budget) const {
  return estimate_.follow(best_rung(budget).budget);
}

std::vector<Bytes> RotorLadder::steps() const {
  std::vector<Bytes> budgets;
  std::optional<Seconds> last;
  for (const Rung& rung : rungs_) {
    if (last && time(rung) >= *last) continue;
    last = time(rung);
    budgets.push_back(rung.budget);
  }
  return budgets;
}

}  // namespace plimsoll
