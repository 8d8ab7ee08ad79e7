// The strategy `zero_offload`: optimizer states on the host; gradients leave during the backward, the host's processor
// updates its copy of the parameters, which come back. Source: Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li,
// He, "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021.

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

constexpr auto zero_offload_options = options_of<HostUpdateOptions>(overlap_option);

std::vector<TapeOutcome> zero_offload_tapes(const PartTask& task, const HostUpdateOptions& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, "zero_offload", false);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::host};
  const UpdateCopies copies{.overlaps_backward = options.overlap};
  TapePool pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_offload has one schedule, whatever the budget");
}

}  // namespace

extern constinit const StrategyInfo zero_offload_strategy{
    .name = "zero_offload",
    .family = Family::offloading,
    .summary = "keeps optimizer states on the host and updates the parameters there",
    .source = "Ren et al., 'ZeRO-Offload: democratizing billion-scale model training', USENIX ATC 2021",
    .needs_updates = true,
    .options = zero_offload_options,
    .kind = TapeStrategy{.tapes = by_options<zero_offload_tapes>, .moves_parameters = true},
};

}  // namespace plimsoll
