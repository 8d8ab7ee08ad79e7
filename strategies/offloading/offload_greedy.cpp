#include "strategies/offloading/offload_greedy.h"

#include <algorithm>

#include "strategies/common/op_sequence.h"
#include "strategies/offloading/offload_placement.h"
#include "strategies/offloading/offload_selection.h"
#include "strategies/offloading/tape_pool.h"

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

TapePool plans(const PartTask& task, const Options& options, const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host || model.gaps.empty()) return pool;
  const std::vector<OffloadItem> items = offload_items(model, static_cast<std::uint32_t>(options.integer("chunks")));
  std::vector<Selection> selections;
  for (const SelectionRule rule : all_rules) selections.push_back(select_items(model, items, rule));
  Bytes least = selections.front().peaks.back();
  for (const Selection& selection : selections) least = std::min(least, selection.peaks.back());
  const Bytes most = selections.front().peaks.front();
  const std::int64_t levels = std::min(options.integer("levels"), (most - least).count);
  for (std::int64_t level = 0; level < levels; ++level) {
    const Bytes budget =
        least + range_of(most - least, {static_cast<std::uint32_t>(level), static_cast<std::uint32_t>(levels)}).offset;
    if (const std::optional<Placement> made = best_placement(model, selections, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
  return pool;
}

}  // namespace

std::vector<TapeOutcome> offload_greedy_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&model)) return refused(*why, budgets);
  return plans(task, options, std::get<OffloadModel>(model)).outcomes(budgets, "no more than this can be offloaded");
}

std::vector<Bytes> offload_greedy_candidates(const PartTask& task, const Options& options) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(model)) return {};
  return plans(task, options, std::get<OffloadModel>(model)).peaks();
}

}  // namespace plimsoll
