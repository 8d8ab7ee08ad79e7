#include "strategies/rematerialization/rotor/rotor_slots.h"

#include "strategies/rematerialization/rotor/rotor_table.h"

namespace plimsoll {

RotorSlots::RotorSlots(const ChainModel& model, std::int64_t slots, std::span<const Bytes> budgets)
    : model_{model}, slots_{slots}, unrounded_{model, budgets, longest_exact_chain, few_points} {}

std::optional<ExactPlan> RotorSlots::solve(Bytes budget) const {
  std::optional<ExactPlan> plan = unrounded_.solve(budget);
  if (!plan || plan->gap() == 0) return plan;
  const Seconds recompute = plan->time - evaluate(model_, store_all_sequence(model_.stages())).time;
  const RotorTable table(model_, slot_for(model_, budget, slots_), budget, recompute);
  std::optional<ChainSequence> rounded = table.solve(budget);
  if (!rounded) return plan;
  const Seconds time = evaluate(model_, *rounded).time;
  if (time < plan->time) *plan = {*std::move(rounded), time, std::min(time, plan->lower_bound)};
  return plan;
}

std::vector<Bytes> RotorSlots::steps() const {
  // Every budget has a table of its own.
  constexpr std::size_t most = 200;
  const std::vector<Bytes> all = unrounded_.steps();
  if (model_.stages() <= longest_exact_chain || all.size() <= most) return all;
  std::vector<Bytes> some;
  for (std::size_t k = 0; k < most; ++k) some.push_back(all[k * (all.size() - 1) / (most - 1)]);
  return some;
}

}  // namespace plimsoll
