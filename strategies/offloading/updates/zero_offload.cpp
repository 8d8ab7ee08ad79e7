#include "strategies/offloading/updates/zero_offload.h"

#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {

std::vector<TapeOutcome> zero_offload_tapes(const PartTask& task, const Options& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, zero_offload_strategy.name, false);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::host};
  const UpdateCopies copies{.overlaps_backward = options.text("overlap") == "on"};
  TapePool pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_offload has one schedule, whatever the budget");
}

}  // namespace plimsoll
