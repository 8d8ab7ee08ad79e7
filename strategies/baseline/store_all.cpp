#include "strategies/baseline/store_all.h"

#include "strategies/common/chain_pass.h"

namespace plimsoll {

std::vector<TapeOutcome> store_all_tapes(const PartTask& task, const Options&,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const Part& part = task.partition.parts[task.part.index];
  if (task.problem.chain) {
    const std::size_t stages = chain_part(task.problem, part).chain.stages.size();
    return fixed_sequence(task, store_all_sequence(stages), store_all_strategy.name, budgets);
  }
  Tape tape;
  for (const OpId op : part.ops) tape.actions.push_back(compute(op));
  return fixed_tape(task, with_drops(task.problem.graph, std::move(tape)), store_all_strategy.name, budgets);
}

}  // namespace plimsoll
