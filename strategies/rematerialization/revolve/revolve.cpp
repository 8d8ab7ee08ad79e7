// The strategy `revolve`: binomial checkpointing (revolve_schedule.h) as a tape.

#include <algorithm>
#include <memory>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/rematerialization/revolve/revolve_schedule.h"

namespace plimsoll {
namespace {

struct RevolveOptions {
  std::optional<std::size_t> slots;
};

constexpr std::size_t most_slots = 1000;

SequenceFamily revolve_family(const PartTask& task, const RevolveOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const std::size_t useful = std::min(stages, most_slots);
  const bool any = !options.slots;
  const std::size_t slots = any ? useful : std::min(useful, *options.slots);
  const auto schedule = std::make_shared<const RevolveSchedule>(stages, slots);
  return {.name = "revolve", .count = any ? slots : 1, .sequence = [schedule, any, slots](std::size_t k) {
            return schedule->sequence(any ? k + 1 : slots);
          }};
}

constexpr auto revolve_options = options_of<RevolveOptions>(option_of<&RevolveOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 1'000,
    .help = "number of checkpoints: stage inputs kept at one time, the network's input included; auto: the number "
            "whose schedule is the fastest within the budget",
}));

std::vector<TapeOutcome> revolve_tapes(const PartTask& task, const RevolveOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, revolve_family(task, options), budgets);
}

std::vector<Bytes> revolve_candidates(const PartTask& task, const RevolveOptions& options) {
  return budgets_of_sequences(task, revolve_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo revolve_strategy{
    .name = "revolve",
    .family = Family::rematerialization,
    .summary = "binomial checkpointing: the fewest forwards for a number of checkpoints, as if all stages were equal",
    .source = "Griewank, Walther, 'Algorithm 799: revolve', ACM Transactions on Mathematical Software 26(1), 2000",
    .chains_only = true,
    .options = revolve_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<revolve_tapes>,
            .candidates = by_options<revolve_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 1000},
};

}  // namespace plimsoll
