#include "strategies/common/best_of_sequences.h"

#include <algorithm>
#include <string>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using Kind = ChainStep::Kind;

/// A plan that no other beats in both memory and time.
struct FrontPlan {
  std::size_t k;
  Bytes peak;
  Seconds makespan;
};

/// By ascending peak, and so by falling makespan.
std::vector<FrontPlan> front_of(const PartTask& task, const TapeFamily& family) {
  std::vector<FrontPlan> plans;
  for (std::size_t k = 0; k < family.costs.size(); ++k) {
    plans.push_back({k, peak_in_flight(family.costs[k], task.in_flight), family.costs[k].makespan});
  }
  std::ranges::stable_sort(plans, [](const FrontPlan& a, const FrontPlan& b) {
    return a.peak != b.peak ? a.peak < b.peak : a.makespan < b.makespan;
  });
  std::vector<FrontPlan> front;
  for (const FrontPlan& plan : plans) {
    if (front.empty() || plan.makespan < front.back().makespan) front.push_back(plan);
  }
  return front;
}

TapeFamily tapes_of(const PartTask& task, const SequenceFamily& family) {
  const Part& part = task.partition.parts[task.part.index];
  const auto tape = [&task, &family, chain = chain_part(task.problem, part)](std::size_t k) {
    const ChainModel model = chain_model(task.problem, chain);
    return chain_tape(task.problem, task.partition, task.part, chain,
                      without_forbidden_repeats(model, family.sequence(k)));
  };
  TapeFamily tapes{family.name, {}, tape};
  for (std::size_t k = 0; k < family.count; ++k) {
    tapes.costs.push_back(tape_cost(task.problem, part, tape(k)));
  }
  return tapes;
}

/// Whether step t makes an x that a later step reads before it is made anew.
std::vector<bool> useful(const ChainModel& model, const ChainSequence& sequence) {
  std::vector<bool> reads_later(model.stages() + 1, false), result(sequence.size(), true);
  for (std::size_t t = sequence.size(); t-- > 0;) {
    const auto [kind, i] = sequence[t];
    if (kind == Kind::forward) {
      result[t] = reads_later[i + 1];
      if (!result[t]) continue;
    }
    if (kind != Kind::backward) reads_later[i + 1] = false;
    reads_later[i] = true;
  }
  return result;
}

}  // namespace

std::vector<TapeOutcome> best_of_tapes(const PartTask& task, const TapeFamily& family,
                                       std::span<const std::optional<Bytes>> budgets) {
  const std::vector<FrontPlan> front = front_of(task, family);
  EXPECTS(!front.empty());
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    const auto end = budget ? std::ranges::upper_bound(front, *budget, {}, &FrontPlan::peak) : front.end();
    if (end == front.begin()) {
      outcomes.emplace_back(
          Infeasible{"none of the schedules of " + std::string(family.name) + " fits", front.front().peak});
      continue;
    }
    const FrontPlan& chosen = *(end - 1);
    outcomes.emplace_back(PlannedTape{family.tape(chosen.k), chosen.peak, chosen.makespan, std::nullopt});
  }
  return outcomes;
}

std::vector<Bytes> budgets_of_tapes(const PartTask& task, const TapeFamily& family) {
  std::vector<Bytes> budgets;
  for (const FrontPlan& plan : front_of(task, family)) budgets.push_back(plan.peak);
  return budgets;
}

std::vector<TapeOutcome> best_of_sequences(const PartTask& task, const SequenceFamily& family,
                                           std::span<const std::optional<Bytes>> budgets) {
  return best_of_tapes(task, tapes_of(task, family), budgets);
}

std::vector<Bytes> budgets_of_sequences(const PartTask& task, const SequenceFamily& family) {
  return budgets_of_tapes(task, tapes_of(task, family));
}

ChainSequence without_forbidden_repeats(const ChainModel& model, ChainSequence sequence) {
  if (std::ranges::find(model.recomputable, false) == model.recomputable.end()) return sequence;
  std::vector<bool> ran(model.stages(), false);
  std::erase_if(sequence, [&](ChainStep& step) {
    if (step.kind == Kind::backward || model.recomputable[step.stage]) return false;
    step.kind = Kind::forward_saving;
    const bool again = ran[step.stage];
    ran[step.stage] = true;
    return again;
  });
  const std::vector<bool> keep = useful(model, sequence);
  ChainSequence result;
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    if (keep[t]) result.push_back(sequence[t]);
  }
  return result;
}

}  // namespace plimsoll
