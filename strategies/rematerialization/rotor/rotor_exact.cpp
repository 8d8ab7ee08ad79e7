#include "strategies/rematerialization/rotor/rotor_exact.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"
#include "strategies/rematerialization/rotor/rotor_grid.h"

namespace plimsoll {
namespace {

// Plans of rotor's class for every budget of a long chain: those that a grid (rotor_grid.h) leads to at levels of
// memory, each budget answered by the fastest of the levels below it, so that less memory is never faster. A second
// grid bounds how fast any plan of the class can be.

class RotorLevels {
 public:
  explicit RotorLevels(const ChainModel&, GridPoints);

  Bytes smallest_feasible() const { return estimate_.smallest_feasible(); }

  /// A bound for every sequence of rotor's class within a feasible budget.
  Seconds least_recompute(Bytes budget) const;

  ChainSequence solve(Bytes budget) const;

  /// The budgets below store_all's peak at which the time falls, ascending.
  std::vector<Bytes> steps() const;

 private:
  // Followed when first asked for.
  struct Level {
    Bytes budget;
    mutable std::optional<Seconds> time;
  };

  Seconds time(const Level&) const;
  const Level& best_level(Bytes budget) const;

  ChainModel model_;
  RotorGrid bound_, estimate_;
  Seconds work_;  // of store_all
  std::vector<Level> levels_;
};

// Closer together where memory is scarce: there it saves the most time.
constexpr std::int64_t rotor_levels = 2048;

RotorLevels::RotorLevels(const ChainModel& model, GridPoints points)
    : model_{model}, bound_{model, GridRounding::down, points}, estimate_{model, GridRounding::nearest, points} {
  bound_.drop_parts();
  const ChainCost all = evaluate(model, store_all_sequence(model.stages()));
  work_ = all.time;
  const Bytes least = estimate_.smallest_feasible();
  for (std::int64_t k = 0; k < rotor_levels; ++k) {
    const double part = static_cast<double>(k * k) / static_cast<double>(rotor_levels * rotor_levels);
    const Bytes budget = least + Bytes{static_cast<std::int64_t>(part * static_cast<double>((all.peak - least).count))};
    if (budget < all.peak && (levels_.empty() || budget > levels_.back().budget))
      levels_.push_back({budget, std::nullopt});
  }
}

Seconds RotorLevels::least_recompute(Bytes budget) const {
  return bound_.recompute(budget).value();
}

Seconds RotorLevels::time(const Level& level) const {
  if (!level.time) {
    const ChainCost cost = evaluate(model_, estimate_.follow(level.budget));
    EXPECTS(cost.legal() && cost.peak <= level.budget);
    level.time = cost.time;
  }
  return *level.time;
}

// The levels below are followed only as far as they may be faster.
const RotorLevels::Level& RotorLevels::best_level(Bytes budget) const {
  auto level = std::ranges::upper_bound(levels_, budget, {}, &Level::budget);
  EXPECTS(level != levels_.begin());
  const Level* best = &*--level;
  while (level != levels_.begin()) {
    --level;
    if (work_ + least_recompute(level->budget) >= time(*best)) break;
    if (time(*level) < time(*best)) best = &*level;
  }
  return *best;
}

ChainSequence RotorLevels::solve(Bytes budget) const {
  return estimate_.follow(best_level(budget).budget);
}

std::vector<Bytes> RotorLevels::steps() const {
  std::vector<Bytes> budgets;
  std::optional<Seconds> last;
  for (const Level& level : levels_) {
    if (last && time(level) >= *last) continue;
    last = time(level);
    budgets.push_back(level.budget);
  }
  return budgets;
}

// 16 bytes each. The largest front of 250 stages with random sizes has 6,700; on average fronts have a quarter of that.
constexpr std::size_t most_points = std::size_t{1} << 28;

}  // namespace

RotorExact::RotorExact(ChainModel model, std::span<const Bytes> budgets, std::size_t longest_exact,
                       std::optional<GridPoints> points)
    : model_{std::move(model)}, store_all_{evaluate(model_, store_all_sequence(model_.stages()))} {
  if (model_.stages() > longest_exact) {
    use_levels(points.value_or(GridPoints::affordable(model_.stages())));
  } else {
    least_memory_ = rotor_least_memory(model_).budget;
    use_fronts(budgets.empty() ? FrontWindow{} : window(budgets));
  }
}

// Most budgets are answered with little recomputation, and a grid for little is soon there.
FrontWindow RotorExact::window(std::span<const Bytes> budgets) const {
  constexpr double little = 0.4;  // of all forwards
  Seconds longest;
  for (const Seconds s : model_.nograd) longest += little * s;
  for (;;) {
    std::variant<FrontWindow, Seconds> found = window(budgets, longest);
    if (auto* window = std::get_if<FrontWindow>(&found)) return std::move(*window);
    longest = std::get<Seconds>(found);
  }
}

// A grid of few points leads to a plan for each budget; nothing slower is of use to it or to more memory. Where a plan
// takes longer than `longest_recompute`, how long that is; where there is none, infinite.
std::variant<FrontWindow, Seconds> RotorExact::window(std::span<const Bytes> budgets, Seconds longest_recompute) const {
  const RotorGrid bound(model_, GridRounding::down, few_points, longest_recompute);
  const auto [least, most] = std::ranges::minmax(budgets);
  const Bytes high = std::min(most, store_all_.peak - Bytes{1});
  std::vector<Bytes> from{std::max(least, least_memory_)};
  for (const Bytes budget : budgets) {
    if (budget > from.front() && budget <= high) from.push_back(budget);
  }
  std::ranges::sort(from);
  std::vector<RotorRegion::Known> known;
  Seconds slowest;
  for (std::size_t k = 0; k < from.size() && from[k] <= high; ++k) {
    if (from[k] < bound.smallest_feasible()) return Seconds{std::numeric_limits<double>::infinity()};
    const Bytes end = k + 1 < from.size() ? std::max(from[k], from[k + 1] - Bytes{1}) : high;
    // The sum of the same durations in another order may be less.
    const Seconds recompute = evaluate(model_, bound.follow(from[k])).time - store_all_.time;
    slowest = std::max(slowest, recompute);
    known.push_back({from[k], end, std::max(Seconds{0}, recompute) + sum_tolerance * store_all_.time});
  }
  if (slowest > longest_recompute) return slowest;
  return FrontWindow{.most = std::max(high, least_memory_), .region = RotorRegion(bound, known)};
}

void RotorExact::use_fronts(const FrontWindow& window) {
  const std::size_t fronts = model_.stages() * (model_.stages() + 1) / 2;
  const auto slow = std::make_shared<const RotorFronts>(model_, FrontRounding::up, most_points / fronts, window);
  const auto fast =
      slow->exact() ? slow
                    : std::make_shared<const RotorFronts>(model_, FrontRounding::down, most_points / fronts, window);
  steps_ = [slow] { return slow->steps(); };
  recompute_bound_ = [fast](Bytes budget) { return fast->recompute(budget); };
  fastest_ = [slow](Bytes budget) { return slow->solve(budget).value(); };
}

void RotorExact::use_levels(GridPoints points) {
  const auto levels = std::make_shared<const RotorLevels>(model_, points);
  least_memory_ = std::min(levels->smallest_feasible(), store_all_.peak);
  steps_ = [levels] { return levels->steps(); };
  recompute_bound_ = [levels](Bytes budget) { return levels->least_recompute(budget); };
  fastest_ = [levels](Bytes budget) { return levels->solve(budget); };
}

std::vector<Bytes> RotorExact::steps() const {
  std::vector<Bytes> budgets = steps_();
  budgets.push_back(store_all_.peak);
  return budgets;
}

std::optional<ExactPlan> RotorExact::solve(Bytes budget) const {
  if (budget < least_memory_) return std::nullopt;
  ExactPlan plan;
  plan.sequence = budget < store_all_.peak ? fastest_(budget) : store_all_sequence(model_.stages());
  const ChainCost cost = evaluate(model_, plan.sequence);
  EXPECTS(cost.legal() && cost.peak <= budget);
  plan.time = cost.time;
  const Seconds bound = lower_bound(budget).value();
  plan.lower_bound = reaches(plan.time, bound) ? plan.time : bound;
  return plan;
}

std::optional<Seconds> RotorExact::lower_bound(Bytes budget) const {
  if (budget < least_memory_) return std::nullopt;
  if (budget >= store_all_.peak) return store_all_.time;
  return store_all_.time + recompute_bound_(budget).value();
}

}  // namespace plimsoll
