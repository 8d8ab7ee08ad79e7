#include "experiments/explain/better_plans.h"

#include <algorithm>
#include <array>

#include "sim/bound/iteration_bound.h"
#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/compose/plan.h"

namespace plimsoll {
namespace {

constexpr std::array shaved_shares{0.01, 0.02, 0.05, 0.1, 0.2};
constexpr DeviceId only_device{0};
/// Budgets in between are not told apart: a 4096th of what is between two that are.
constexpr int halvings = 12;

/// Plans of the strategy that need more memory than this one and are faster, by rising memory.
std::vector<FasterPlan> faster_plans(const AnsweredQuestion& of) {
  const auto& [question, problem, made] = of;
  std::vector<std::optional<Bytes>> budgets;
  for (const Bytes b : front_budgets(problem, question.strategy.passes)) {
    if (b > made.metrics->peak) budgets.emplace_back(b);
  }
  if (budgets.empty()) return {};
  FrontOf<FasterPlan> front;
  answer(question, problem, budgets, [&, &now = *made.metrics](std::size_t, const Answer& each) {
    if (!each.feasible() || !is_below(each.metrics->makespan, now.makespan)) return;
    front.add(each.metrics->peak, each.metrics->makespan, {each.metrics->peak, each.metrics->makespan});
  });
  return std::move(front).plans();
}

/// Looks for the most memory within which the bound is above the time.
void bound(Shave& shave, IterationBounds& bounds, Bytes has, Seconds target) {
  const auto is_above = [&](std::optional<Bytes> budget) {
    const IterationBound at = bounds.within(budget);
    return at.needs.has_value() || is_below(target, at.time);
  };
  shave.is_impossible = is_above(std::nullopt);
  if (shave.is_impossible || !is_above(has)) return;
  Bytes above = has, below = 2 * has;
  for (; is_above(below); below = 2 * below) above = below;
  for (int k = 0; k < halvings && above < below; ++k) {
    const Bytes middle{above.count + (below.count - above.count) / 2};
    (is_above(middle) ? above : below) = middle;
  }
  shave.at_least = above;
}

/// Why there is no bound; empty: there is one.
std::string unbounded_because(const AnsweredQuestion& of) {
  if (of.problem.mesh || of.problem.platform.devices.size() > 1) return "bounds are of one device";
  if (!of.answer.schedule->codecs.empty()) return "bounds are of schedules that pack nothing";
  if (of.answer.stays != Stays::all) return "bounds are of schedules that keep parameters, gradients and states there";
  return {};
}

}  // namespace

BetterPlans better_plans(const AnsweredQuestion& of) {
  const Answer& made = of.answer;
  BetterPlans better;
  better.no_bounds = unbounded_because(of);
  std::vector<FasterPlan> plans;
  if (made.promised_makespan) {
    plans = faster_plans(of);
    if (!plans.empty()) better.next = plans.front();
  } else {
    better.no_plans = "the schedule is from a file";
  }
  std::optional<IterationBounds> bounds;
  if (better.no_bounds.empty()) {
    bounds.emplace(of.problem, only_device, BoundRules{.out = ways_out(of.problem.platform, only_device)});
  }
  const Bytes has = made.metrics->peak;
  for (const double share : shaved_shares) {
    Shave shave{.share = share};
    const Seconds target = (1 - share) * made.metrics->makespan;
    const auto found = std::ranges::find_if(plans, [&](const FasterPlan& plan) { return plan.makespan <= target; });
    if (found != plans.end()) shave.plan = *found;
    if (bounds) bound(shave, *bounds, has, target);
    better.shaves.push_back(shave);
  }
  return better;
}

}  // namespace plimsoll
