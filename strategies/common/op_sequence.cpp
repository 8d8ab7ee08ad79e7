#include "strategies/common/op_sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/common/chain_pass.h"
#include "strategies/common/tape_cost.h"

namespace plimsoll {

OpSequence store_all_ops(const PartTask& task) {
  OpSequence sequence;
  for (const OpId op : task.partition.parts[task.part.index].ops) sequence.push_back({.op = op});
  return sequence;
}

PlannedTape planned_ops(const PartTask& task, const OpSequence& sequence) {
  Tape tape;
  tape.actions.reserve(3 * sequence.size());
  for (const OpRun& run : sequence) tape.actions.push_back(compute(run.op, run.saving, run.implementation));
  tape = with_drops(task.problem.graph, std::move(tape));
  const TapeCost cost = tape_cost(task.problem, task.partition.parts[task.part.index], tape);
  return {std::move(tape), cost.peak, cost.makespan, std::nullopt};
}

void PlanPool::add(const OpSequence& sequence) {
  PlannedTape made = planned_ops(task_, sequence);
  const auto above = std::ranges::upper_bound(plans_, made.peak, {}, &PlannedTape::peak);
  if (above != plans_.begin() && std::prev(above)->makespan <= made.makespan) return;
  const auto from = std::ranges::lower_bound(plans_, made.peak, {}, &PlannedTape::peak);
  auto end = from;
  while (end != plans_.end() && end->makespan >= made.makespan) ++end;
  const auto at = sequences_.begin() + (from - plans_.begin());
  sequences_.insert(sequences_.erase(at, at + (end - from)), sequence);
  plans_.insert(plans_.erase(from, end), std::move(made));
}

const OpSequence* PlanPool::fastest_sequence(std::optional<Bytes> budget) const {
  const PlannedTape* plan = fastest_within(budget);
  return plan == nullptr ? nullptr : &sequences_[static_cast<std::size_t>(plan - plans_.data())];
}

const PlannedTape* PlanPool::fastest_within(std::optional<Bytes> budget) const {
  if (plans_.empty()) return nullptr;
  if (!budget) return &plans_.back();
  const auto above = std::ranges::upper_bound(plans_, *budget, {}, &PlannedTape::peak);
  return above == plans_.begin() ? nullptr : &*std::prev(above);
}

Bytes PlanPool::smallest() const {
  EXPECTS(!plans_.empty());
  return plans_.front().peak;
}

std::vector<TapeOutcome> PlanPool::outcomes(std::span<const std::optional<Bytes>> budgets,
                                            std::string_view reason) const {
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    if (const PlannedTape* plan = fastest_within(budget)) {
      outcomes.emplace_back(*plan);
    } else {
      outcomes.emplace_back(Infeasible{std::string(reason), smallest()});
    }
  }
  return outcomes;
}

std::vector<Bytes> PlanPool::peaks() const {
  std::vector<Bytes> peaks;
  for (const PlannedTape& plan : plans_) peaks.push_back(plan.peak);
  return peaks;
}

std::optional<std::string> not_one_part(const PartTask& task) {
  if (task.partition.parts.size() == 1 && task.in_flight == 1) return std::nullopt;
  return "graphs are rematerialized on one device only";
}

std::vector<TapeOutcome> refused(std::string_view reason, std::span<const std::optional<Bytes>> budgets) {
  return std::vector<TapeOutcome>(budgets.size(), Infeasible{std::string(reason), std::nullopt});
}

}  // namespace plimsoll
