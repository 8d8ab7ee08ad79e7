// The strategy `periodic`: the input of every k-th stage is kept, what is between is recomputed.

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {
namespace {

struct PeriodicOptions {
  std::optional<std::size_t> every;
};

SequenceFamily periodic_family(const PartTask& task, const PeriodicOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const auto sequence_of = [stages](std::size_t every) { return segments_sequence(segments_of(stages, every)); };
  if (!options.every) {
    return {.name = "periodic",
            .count = std::max<std::size_t>(1, stages - 1),
            .sequence = [sequence_of](std::size_t k) { return sequence_of(k + 1); }};
  }
  const std::size_t every = *options.every;
  return {.name = "periodic", .count = 1, .sequence = [sequence_of, every](std::size_t) { return sequence_of(every); }};
}

constexpr auto periodic_options = options_of<PeriodicOptions>(option_of<&PeriodicOptions::every>({
    .name = "every",
    .least = 1,
    .most = 1'000'000,
    .values = "auto or a whole number from 1",
    .help = "number of stages that are recomputed together (the last ones are kept); auto: the number that is the "
            "fastest within the budget",
}));

std::vector<TapeOutcome> periodic_tapes(const PartTask& task, const PeriodicOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, periodic_family(task, options), budgets);
}

std::vector<Bytes> periodic_candidates(const PartTask& task, const PeriodicOptions& options) {
  return budgets_of_sequences(task, periodic_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo periodic_strategy{
    .name = "periodic",
    .family = Family::rematerialization,
    .summary = "keeps the input of every k-th stage and recomputes k stages at a time",
    .source = "torch.utils.checkpoint around every k stages in a row",
    .chains_only = true,
    .options = periodic_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<periodic_tapes>,
            .candidates = by_options<periodic_candidates>,
            .plans_parts = true,
        },
};

}  // namespace plimsoll
