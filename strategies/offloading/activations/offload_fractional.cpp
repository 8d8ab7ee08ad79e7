// The strategy `offload_fractional`: if any amount of data could be moved, it would be best to move just what is in
// excess, oldest first; values are cut into many chunks to come near that.
// Source: the fractional relaxation of Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for
// deep neural network training", Euro-Par 2020.

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_plans.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/offload_store.h"

namespace plimsoll {
namespace {

struct OffloadFractionalOptions : OffloadOptions {
  OffloadFractionalOptions() { chunks = 16; }
};

TapePool offload_fractional_plans(const PartTask& task, const OffloadFractionalOptions& options,
                                  const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  const Selection selection = select_items(model, offload_items(model, options.chunks), SelectionRule::first_made);
  for (const Bytes budget :
       memory_levels(selection.peaks.back(), selection.peaks.front(), options.levels, model.positions())) {
    const std::span<const OffloadItem> items = std::span(selection.items).first(*selection.needed(budget));
    if (const std::optional<PlacedCopies> made = placed_items(model, items, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
  return pool;
}

constexpr auto offload_fractional_options = options_of<OffloadFractionalOptions>(
    option_of<&ChunkOptions::chunks>({
        .name = "chunks",
        .least = 1,
        .most = 1000,
        .help = "number of chunks of a value; each chunk is copied and freed on its own",
    }),
    levels_option, store_option);

std::vector<TapeOutcome> offload_fractional_tapes(const PartTask& task, const OffloadFractionalOptions& options,
                                                  std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return best_plans(task, options, budgets, before,
                    [&](const OffloadModel& model) { return offload_fractional_plans(task, options, model); });
}

std::vector<Bytes> offload_fractional_candidates(const PartTask& task, const OffloadFractionalOptions& options) {
  return peaks_of_plans(task, options,
                        [&](const OffloadModel& model) { return offload_fractional_plans(task, options, model); });
}

}  // namespace

extern constinit const StrategyInfo offload_fractional_strategy{
    .name = "offload_fractional",
    .family = Family::offloading,
    .summary = "offloads only the bytes above the budget, oldest values first, in chunks",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .options = offload_fractional_options,
    .kind = TapeStrategy{.tapes = by_options<offload_fractional_tapes>,
                         .candidates = by_options<offload_fractional_candidates>},
    .effort = {.stages = 300, .ops = 5000},
};

}  // namespace plimsoll
