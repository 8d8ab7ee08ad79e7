#include "strategies/offloading/offload_greedy.h"

#include <algorithm>

#include "strategies/offloading/offload_placement.h"
#include "strategies/offloading/offload_plans.h"
#include "strategies/offloading/offload_selection.h"

namespace plimsoll {
namespace {

constexpr std::array all_rules{SelectionRule::bytes_per_exposed, SelectionRule::free_time, SelectionRule::first_made};

/// The fastest placement within a budget, by the estimate.
std::optional<Placement> best_placement(const OffloadModel& model, std::span<const Selection> selections,
                                        Bytes budget) {
  std::optional<Placement> best;
  for (const Selection& selection : selections) {
    const std::optional<std::size_t> needed = selection.needed(budget);
    if (!needed) continue;
    std::optional<Placement> made = place(model, std::span(selection.items).first(*needed), budget);
    if (made && (!best || made->makespan < best->makespan)) best = std::move(made);
  }
  return best;
}

void add_plans(const PartTask& task, const OffloadModel& model, std::uint32_t chunks, std::string_view levels,
               TapePool& pool) {
  const std::vector<OffloadItem> items = offload_items(model, chunks);
  std::vector<Selection> selections;
  selections.reserve(std::size(all_rules));
  for (const SelectionRule rule : all_rules) selections.push_back(select_items(model, items, rule));
  const Bytes least = selections.front().peaks.back(), most = selections.front().peaks.front();  // all rules agree
  for (const Bytes budget : memory_levels(least, most, levels, model.positions())) {
    if (const std::optional<Placement> made = best_placement(model, selections, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
}

/// Chunks leave room sooner; whole values are fewer copies, each with its latency.
TapePool plans(const PartTask& task, const Options& options, const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  const auto chunks = static_cast<std::uint32_t>(options.integer("chunks"));
  add_plans(task, model, 1, options.text("levels"), pool);
  if (chunks > 1) add_plans(task, model, chunks, options.text("levels"), pool);
  return pool;
}

}  // namespace

std::vector<TapeOutcome> offload_greedy_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return best_plans(task, options, budgets, before, plans);
}

std::vector<Bytes> offload_greedy_candidates(const PartTask& task, const Options& options) {
  return peaks_of_plans(task, options, plans);
}

}  // namespace plimsoll
