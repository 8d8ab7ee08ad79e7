#include "strategies/models/op_sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {

OpSequence store_all_ops(const PartTask& task) {
  OpSequence sequence;
  for (const OpId op : task.part().ops) sequence.push_back({.op = op});
  return sequence;
}

Tape tape_of_ops(const Graph& graph, const OpSequence& sequence) {
  Tape tape;
  tape.actions.reserve(3 * sequence.size());
  for (const OpRun& each : sequence) tape.actions.push_back(run(each.op, each.saving, each.implementation));
  return with_drops(graph, std::move(tape));
}

PlannedTape planned_ops(const PartTask& task, const OpSequence& sequence) {
  Tape tape = tape_of_ops(task.problem.graph, sequence);
  const TapeCost cost = tape_cost(task.problem, task.part(), tape);
  return {std::move(tape), cost.peak, cost.makespan, std::nullopt};
}

std::optional<std::string> not_one_part(const PartTask& task) {
  if (task.partition.parts.size() == 1 && task.in_flight == 1) return std::nullopt;
  return "graphs are rematerialized on one device only";
}

std::vector<TapeOutcome> refused(std::string_view reason, std::span<const std::optional<Bytes>> budgets) {
  return std::vector<TapeOutcome>(budgets.size(), Infeasible{std::string(reason), std::nullopt});
}

}  // namespace plimsoll
