#include "strategies/offloading/parameters/zero_infinity.h"

#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {

std::vector<TapeOutcome> zero_infinity_tapes(const PartTask& task, const Options& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, zero_infinity_strategy.name, true);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::disk};
  const UpdateCopies copies{.on_host_at_once = static_cast<std::uint32_t>(options.integer("buffers"))};
  TapePool pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_infinity has one schedule, whatever the budget");
}

}  // namespace plimsoll
