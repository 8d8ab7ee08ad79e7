#include "strategies/common/chain_pass.h"

#include <string>

namespace plimsoll {

std::vector<TapeOutcome> fixed_tape(const PartTask& task, const Tape& tape, std::string_view name,
                                    std::span<const std::optional<Bytes>> budgets) {
  const TapeCost cost = tape_cost(task.problem, task.partition.parts[task.part.index], tape);
  const Bytes peak = peak_in_flight(cost, task.in_flight);
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
  const ChainPart part = chain_part(task.problem, task.partition.parts[task.part.index]);
  return fixed_tape(task, chain_tape(task.problem, task.partition, task.part, part, sequence), name, budgets);
}

Bytes peak_in_flight(const TapeCost& cost, std::uint32_t in_flight) {
  return cost.peak + static_cast<std::int64_t>(in_flight - 1) * cost.kept;
}

}  // namespace plimsoll
