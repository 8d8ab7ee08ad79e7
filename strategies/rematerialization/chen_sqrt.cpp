#include "strategies/rematerialization/chen_sqrt.h"

#include "strategies/common/chain_pass.h"
#include "strategies/rematerialization/chen.h"

namespace plimsoll {

std::vector<TapeOutcome> chen_sqrt_tapes(const PartTask& task, const Options& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const Part& part = task.partition.parts[task.part.index];
  const std::size_t stages = chain_part(task.problem, part).chain.stages.size();
  const std::size_t segments = options.text("segments") == "sqrt"
                                   ? chen_segments(stages)
                                   : static_cast<std::size_t>(options.integer("segments"));
  return fixed_sequence(task, chen_sequence(stages, segments), chen_sqrt_strategy.name, budgets);
}

}  // namespace plimsoll
