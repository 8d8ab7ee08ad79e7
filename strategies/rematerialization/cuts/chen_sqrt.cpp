#include "strategies/rematerialization/cuts/chen_sqrt.h"

#include "strategies/common/best_of_sequences.h"
#include "strategies/common/chain_pass.h"
#include "strategies/rematerialization/cuts/chen.h"

namespace plimsoll {

std::vector<TapeOutcome> chen_sqrt_tapes(const PartTask& task, const Options& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const ChainModel model = chain_model(task.problem, chain_part(task.problem, task.partition.parts[task.part.index]));
  const std::size_t segments = options.text("segments") == "sqrt"
                                   ? chen_segments(model.stages())
                                   : static_cast<std::size_t>(options.integer("segments"));
  const ChainSequence sequence = without_forbidden_repeats(model, chen_sequence(model.stages(), segments));
  return fixed_sequence(task, sequence, chen_sqrt_strategy.name, budgets);
}

}  // namespace plimsoll
