#include "strategies/offloading/offload_exact.h"

#include <algorithm>
#include <cmath>

#include "strategies/common/op_sequence.h"
#include "strategies/offloading/offload_bound.h"
#include "strategies/offloading/offload_greedy.h"
#include "strategies/offloading/offload_search.h"
#include "strategies/offloading/offload_selection.h"

namespace plimsoll {
namespace {

/// The least budget: everything leaves as soon as it may and comes back when it is needed.
Bytes least_memory(const OffloadModel& model, const std::vector<OffloadItem>& items) {
  return select_items(model, items, SelectionRule::first_made).peaks.back();
}

TapeOutcome outcome(const PartTask& task, const OffloadModel& model, const std::vector<OffloadItem>& items,
                    std::optional<Bytes> budget) {
  const Bytes limit = budget.value_or(largest_bytes);
  const std::optional<Seconds> bound = fluid_bound(model, limit);
  const std::optional<BestMoves> best = bound ? best_moves(model, items, limit, *bound) : std::nullopt;
  if (!best) return Infeasible{"no more than this can be offloaded", least_memory(model, items)};
  std::optional<PlannedTape> made = planned_moves(task, model, best->moves);
  if (!made) return Infeasible{"the host has too little memory", std::nullopt};
  const Seconds alone = best->makespan + updates(task);
  const bool as_searched = std::abs(made->makespan.value - alone.value) <= 1e-9 * alone.value;
  if (as_searched && task.problem.micro_batches == 1) made->gap = 0;
  return std::move(*made);
}

bool too_many(const std::vector<OffloadItem>& items, const Options& options) {
  return static_cast<std::int64_t>(items.size()) > options.integer("values");
}

/// Whole values, as the search moves them.
Options greedy_options() {
  return Options(offload_greedy_options, {{"chunks", "1"}});
}

}  // namespace

std::vector<TapeOutcome> offload_exact_tapes(const PartTask& task, const Options& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  const std::vector<OffloadItem> items = model.has_host ? offload_items(model, 1) : std::vector<OffloadItem>{};
  if (too_many(items, options)) return offload_greedy_tapes(task, greedy_options(), budgets, before);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(outcome(task, model, items, budget));
  return outcomes;
}

std::vector<Bytes> offload_exact_candidates(const PartTask& task, const Options& options) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr);
  const OffloadModel* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return {};
  if (too_many(offload_items(*model, 1), options)) return offload_greedy_candidates(task, greedy_options());
  constexpr std::uint32_t levels = 40;
  const std::vector<OffloadItem> items = model->has_host ? offload_items(*model, 1) : std::vector<OffloadItem>{};
  const Bytes least = least_memory(*model, items), most = *std::ranges::max_element(model->memory);
  std::vector<Bytes> budgets{most};
  for (std::uint32_t level = 0; level < levels; ++level) {
    budgets.push_back(least + range_of(most - least, {level, levels}).offset);
  }
  return budgets;
}

}  // namespace plimsoll
