// The strategy `zero_infinity`: as zero_offload, with states and the host's copy of the parameters on a disk between
// updates, of which few are in the host's memory at once. Source: Rajbhandari, Ruwase, Rasley, Smith, He,
// "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning", SC 2021.

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

struct ZeroInfinityOptions {
  std::uint32_t buffers = 2;
};

constexpr auto zero_infinity_options = options_of<ZeroInfinityOptions>(option_of<&ZeroInfinityOptions::buffers>({
    .name = "buffers",
    .least = 1,
    .most = 64,
    .help = "number of updates whose states and parameters are in the host's memory at one time; 2 or more: one "
            "update is read while another runs",
}));

std::vector<TapeOutcome> zero_infinity_tapes(const PartTask& task, const ZeroInfinityOptions& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, "zero_infinity", true);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::disk};
  const UpdateCopies copies{.on_host_at_once = options.buffers};
  TapePool pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_infinity has one schedule, whatever the budget");
}

}  // namespace

extern constinit const StrategyInfo zero_infinity_strategy{
    .name = "zero_infinity",
    .family = Family::offloading,
    .summary = "keeps optimizer states on a disk and updates the parameters on the host, a few at a time",
    .source = "Rajbhandari et al., 'ZeRO-Infinity: breaking the GPU memory wall', SC 2021",
    .needs_updates = true,
    .options = zero_infinity_options,
    .kind = TapeStrategy{.tapes = by_options<zero_infinity_tapes>, .moves_parameters = true},
};

}  // namespace plimsoll
