#include "strategies/rematerialization/policies/periodic.h"

#include <algorithm>

#include "strategies/common/best_of_sequences.h"
#include "strategies/common/checkpoint_segments.h"

namespace plimsoll {
namespace {

SequenceFamily periodic_family(const PartTask& task, const Options& options) {
  const std::size_t stages = chain_part(task.problem, task.partition.parts[task.part.index]).chain.stages.size();
  const auto sequence_of = [stages](std::size_t every) { return segments_sequence(segments_of(stages, every)); };
  if (options.text("every") == "auto") {
    return {.name = periodic_strategy.name,
            .count = std::max<std::size_t>(1, stages - 1),
            .sequence = [sequence_of](std::size_t k) { return sequence_of(k + 1); }};
  }
  const auto every = static_cast<std::size_t>(options.integer("every"));
  return {.name = periodic_strategy.name, .count = 1, .sequence = [sequence_of, every](std::size_t) {
            return sequence_of(every);
          }};
}

}  // namespace

std::vector<TapeOutcome> periodic_tapes(const PartTask& task, const Options& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, periodic_family(task, options), budgets);
}

std::vector<Bytes> periodic_candidates(const PartTask& task, const Options& options) {
  return budgets_of_sequences(task, periodic_family(task, options));
}

}  // namespace plimsoll
