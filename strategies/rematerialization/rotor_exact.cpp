#include "strategies/rematerialization/rotor_exact.h"

#include <algorithm>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/rematerialization/rotor_fronts.h"
#include "strategies/rematerialization/rotor_least_memory.h"
#include "strategies/rematerialization/rotor_table.h"

namespace plimsoll {

namespace {

// 16 bytes each. The largest front of 250 stages with random sizes has 6,700; on average fronts have a quarter of that.
constexpr std::size_t most_points = std::size_t{1} << 28;

constexpr std::int64_t table_slots = 500;

// Sizes rounded down promise too much, so take the fastest promise that is kept.
std::optional<ChainSequence> kept_promise(const ChainModel& model, const RotorTable& table, Bytes budget) {
  for (Bytes promise = budget; promise >= table.smallest_feasible(); promise -= table.slot()) {
    std::optional<ChainSequence> sequence = table.solve(promise);
    if (sequence && evaluate(model, *sequence).peak <= budget) return sequence;
  }
  return std::nullopt;
}

}  // namespace

RotorExact::RotorExact(ChainModel model)
    : model_{std::move(model)}, store_all_{evaluate(model_, store_all_sequence(model_.stages()))} {
  if (model_.stages() <= longest_exact_chain) {
    use_fronts();
  } else {
    use_tables();
  }
  steps_.push_back(store_all_.peak);
}

void RotorExact::use_fronts() {
  const std::size_t fronts = model_.stages() * (model_.stages() + 1) / 2;
  const auto slow = std::make_shared<const RotorFronts>(model_, FrontRounding::up, most_points / fronts);
  const auto fast =
      slow->exact() ? slow : std::make_shared<const RotorFronts>(model_, FrontRounding::down, most_points / fronts);
  least_memory_ = slow->smallest_feasible();
  steps_ = slow->steps();
  recompute_bound_ = [fast](Bytes budget) { return fast->recompute(budget); };
  fastest_ = [slow](Bytes budget) { return slow->solve(budget).value(); };
}

void RotorExact::use_tables() {
  const auto slow = std::make_shared<const RotorTable>(model_, table_slots, SlotRounding::up);
  const auto fast = std::make_shared<const RotorTable>(model_, table_slots, SlotRounding::down);
  const LeastMemory least = rotor_least_memory(model_);
  least_memory_ = least.budget;
  for (Bytes b = least.budget; b < store_all_.peak; b += slow->slot()) steps_.push_back(b);
  recompute_bound_ = [fast](Bytes budget) { return fast->recompute(budget); };
  fastest_ = [model = model_, slow, fast, sequence = least.sequence](Bytes budget) {
    ChainSequence best = sequence;
    for (const auto& other : {slow->solve(budget), kept_promise(model, *fast, budget)}) {
      if (other && evaluate(model, *other).time < evaluate(model, best).time) best = *other;
    }
    return best;
  };
}

std::optional<ExactPlan> RotorExact::solve(Bytes budget) const {
  if (budget < least_memory_) return std::nullopt;
  ExactPlan plan;
  plan.sequence = budget < store_all_.peak ? fastest_(budget) : store_all_sequence(model_.stages());
  const ChainCost cost = evaluate(model_, plan.sequence);
  EXPECTS(cost.legal() && cost.peak <= budget);
  plan.time = cost.time;
  plan.lower_bound = std::min(plan.time, lower_bound(budget).value());
  return plan;
}

std::optional<Seconds> RotorExact::lower_bound(Bytes budget) const {
  if (budget < least_memory_) return std::nullopt;
  if (budget >= store_all_.peak) return store_all_.time;
  return store_all_.time + recompute_bound_(budget).value();
}

}  // namespace plimsoll
