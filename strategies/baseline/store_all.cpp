// Keep every activation until its backward: no recomputation, no transfer; the time to beat and the memory to save.
// Equation: makespan = sum of all durations; peak = the largest sum of saved activations plus what the running op adds.

#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"

namespace plimsoll {
namespace {

std::vector<TapeOutcome> store_all_tapes(const PartTask& task, const Options&,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return fixed_tape(task, plain_tape(task), "store_all", budgets);
}

}  // namespace

extern constinit const StrategyInfo store_all_strategy{
    .name = "store_all",
    .family = Family::baseline,
    .summary = "keeps every activation until its backward has used it: plain training, the baseline",
    .source = "plain training",
    .kind = TapeStrategy{.tapes = store_all_tapes, .plans_parts = true},
};

}  // namespace plimsoll
