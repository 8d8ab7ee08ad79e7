#include "strategies/rematerialization/rotor_exact.h"

#include <algorithm>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/rematerialization/rotor_ladder.h"
#include "strategies/rematerialization/rotor_least_memory.h"

namespace plimsoll {

namespace {

// 16 bytes each. The largest front of 250 stages with random sizes has 6,700; on average fronts have a quarter of that.
constexpr std::size_t most_points = std::size_t{1} << 28;

}  // namespace

RotorExact::RotorExact(ChainModel model, std::span<const Bytes> budgets, std::size_t longest_exact)
    : model_{std::move(model)}, store_all_{evaluate(model_, store_all_sequence(model_.stages()))} {
  if (model_.stages() <= longest_exact) {
    use_fronts(budgets.empty() ? FrontWindow{} : window(budgets));
  } else {
    use_ladder();
  }
}

// A grid of few points leads to a plan for the least of the budgets; what takes longer is of no use to any of them.
FrontWindow RotorExact::window(std::span<const Bytes> budgets) const {
  constexpr GridPoints few{.inner = 64, .last = 2048};
  const RotorGrid estimate(model_, GridRounding::nearest, few);
  FrontWindow window{.most = estimate.smallest_feasible(), .longest_recompute = {}};
  for (const Bytes budget : budgets) {
    if (budget < estimate.smallest_feasible() || budget >= store_all_.peak) continue;
    window.most = std::max(window.most, budget);
    const Seconds time = evaluate(model_, estimate.follow(budget)).time;
    window.longest_recompute = std::max(window.longest_recompute, time - store_all_.time);
  }
  const RotorGrid bound(model_, GridRounding::down, few);
  const Bytes memory = window.most - model_.resident - model_.x[0];
  for (std::size_t i = 0; i < model_.stages(); ++i) {
    window.least_from.push_back(bound.recompute_from(i, memory).value());
  }
  return window;
}

void RotorExact::use_fronts(const FrontWindow& window) {
  const std::size_t fronts = model_.stages() * (model_.stages() + 1) / 2;
  const auto slow = std::make_shared<const RotorFronts>(model_, FrontRounding::up, most_points / fronts, window);
  const auto fast =
      slow->exact() ? slow
                    : std::make_shared<const RotorFronts>(model_, FrontRounding::down, most_points / fronts, window);
  least_memory_ = rotor_least_memory(model_).budget;
  steps_ = [slow] { return slow->steps(); };
  recompute_bound_ = [fast](Bytes budget) { return fast->recompute(budget); };
  fastest_ = [slow](Bytes budget) { return slow->solve(budget).value(); };
}

void RotorExact::use_ladder() {
  const auto ladder = std::make_shared<const RotorLadder>(model_, GridPoints::affordable(model_.stages()));
  least_memory_ = std::min(ladder->smallest_feasible(), store_all_.peak);
  steps_ = [ladder] { return ladder->steps(); };
  recompute_bound_ = [ladder](Bytes budget) { return ladder->least_recompute(budget); };
  fastest_ = [ladder](Bytes budget) { return ladder->solve(budget); };
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
  // Sums of the same durations in another order.
  constexpr double tolerance = 1e-12;
  const Seconds bound = lower_bound(budget).value();
  plan.lower_bound = bound.value * (1 + tolerance) >= plan.time.value ? plan.time : bound;
  return plan;
}

std::optional<Seconds> RotorExact::lower_bound(Bytes budget) const {
  if (budget < least_memory_) return std::nullopt;
  if (budget >= store_all_.peak) return store_all_.time;
  return store_all_.time + recompute_bound_(budget).value();
}

}  // namespace plimsoll
