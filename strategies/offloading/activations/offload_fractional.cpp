#include "strategies/offloading/activations/offload_fractional.h"

#include <algorithm>

#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_plans.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {
namespace {

TapePool offload_fractional_plans(const PartTask& task, const Options& options, const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  const Selection selection = select_items(
      model, offload_items(model, static_cast<std::uint32_t>(options.integer("chunks"))), SelectionRule::first_made);
  for (const Bytes budget :
       memory_levels(selection.peaks.back(), selection.peaks.front(), options.text("levels"), model.positions())) {
    const std::span<const OffloadItem> items = std::span(selection.items).first(*selection.needed(budget));
    if (const std::optional<Placement> made = place(model, items, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
  return pool;
}

}  // namespace

std::vector<TapeOutcome> offload_fractional_tapes(const PartTask& task, const Options& options,
                                                  std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return best_plans(task, options, budgets, before, offload_fractional_plans);
}

std::vector<Bytes> offload_fractional_candidates(const PartTask& task, const Options& options) {
  return peaks_of_plans(task, options, offload_fractional_plans);
}

}  // namespace plimsoll
