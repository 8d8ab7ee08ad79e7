#include "strategies/models/chain_pass.h"

#include <algorithm>
#include <string>

#include "strategies/models/graph_tape.h"

namespace plimsoll {
Tape plain_tape(const PartTask& task) {
  const Part& part = task.part();
  Tape tape;
  if (task.problem.chain) {
    const ChainRange range = chain_range(task.problem, part);
    tape = chain_tape(task.problem, task.partition, task.id, range, store_all_sequence(range.planned()));
  } else {
    tape = graph_tape(task.problem.graph, part);
  }
  // The ops of a graph are what autograd runs: each adds to what is there.
  const bool is_alone = task.partition.parts.size() == 1 && task.partition.updates.are_synchronous();
  if (task.problem.chain && is_alone) tape.backprop = Backprop::in_one_call;
  return tape;
}

std::vector<TapeOutcome> or_plain_training(const PartTask& task, std::span<const std::optional<Bytes>> budgets,
                                           std::vector<TapeOutcome> outcomes) {
  const Tape tape = plain_tape(task);
  const TapeCost cost = tape_cost(task.problem, task.part(), tape);
  const PlannedTape plain{tape, peak_in_flight(cost, task), cost.makespan, 0.0};
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (budgets[b] && *budgets[b] < plain.peak) {
      Infeasible* none = std::get_if<Infeasible>(&outcomes[b]);
      if (none != nullptr && none->smallest) none->smallest = std::min(*none->smallest, plain.peak);
      continue;
    }
    const PlannedTape* made = std::get_if<PlannedTape>(&outcomes[b]);
    const bool is_as_good = made != nullptr && (made->makespan < plain.makespan ||
                                                (made->makespan == plain.makespan && made->peak <= plain.peak));
    if (!is_as_good) outcomes[b] = plain;
  }
  return outcomes;
}

Bytes plain_training_peak(const PartTask& task) {
  const TapeCost cost = tape_cost(task.problem, task.part(), plain_tape(task));
  return peak_in_flight(cost, task);
}

std::vector<TapeOutcome> fixed_tape(const PartTask& task, const Tape& tape, std::string_view name,
                                    std::span<const std::optional<Bytes>> budgets) {
  const TapeCost cost = tape_cost(task.problem, task.part(), tape);
  const Bytes peak = peak_in_flight(cost, task);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    if (budget && *budget < peak) {
      outcomes.emplace_back(Infeasible{std::string(name) + " has one schedule, whatever the budget", peak});
    } else {
      outcomes.emplace_back(PlannedTape{tape, peak, cost.makespan, std::nullopt});
    }
  }
  return outcomes;
}

std::vector<TapeOutcome> fixed_sequence(const PartTask& task, const ChainSequence& sequence, std::string_view name,
                                        std::span<const std::optional<Bytes>> budgets) {
  const ChainPart part = chain_part(task.problem, task.part());
  return fixed_tape(task, chain_tape(task.problem, task.partition, task.id, part, sequence), name, budgets);
}

Bytes peak_in_flight(const TapeCost& cost, const PartTask& task) {
  return cost.peak + static_cast<std::int64_t>(task.in_flight - 1) * cost.kept +
         static_cast<std::int64_t>(task.weights_waiting) * cost.kept_for_weights;
}

}  // namespace plimsoll
