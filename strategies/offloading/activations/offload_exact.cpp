// The strategy `offload_exact`: of all ways to take values to the host and back whole, between their uses, the fastest,
// with a bound on what any such schedule takes. For short chains and graphs. Source: own search for the problem of
// Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par
// 2020, which is NP-hard in the strong sense.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_search.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/offload_store.h"

namespace plimsoll {
namespace {

struct OffloadExactOptions : OffloadOptions {
  std::int64_t values = 14;
};

constexpr std::size_t rows_of_a_search = 50'000;  // of a search, some milliseconds to a second
constexpr Seconds never{std::numeric_limits<double>::infinity()};

/// The least budget: everything leaves as soon as it may and comes back when it is needed.
Bytes least_memory(const OffloadModel& model, const std::vector<OffloadItem>& items) {
  return select_items(model, items, SelectionRule::first_made).peaks.back();
}

/// The fastest plan, where the search finds one that is faster than `known`, and a bound on what any takes.
TapeOutcome outcome(const PartTask& task, const OffloadModel& model, const std::vector<OffloadItem>& items,
                    std::optional<Bytes> budget, TapeOutcome known) {
  const Bytes limit = budget.value_or(largest_bytes);
  const std::optional<Seconds> fluid = fluid_bound(model, limit);
  PlannedTape* best = std::get_if<PlannedTape>(&known);
  if (!fluid || best == nullptr) return known;
  std::string stopped;
  const bool once = task.problem.micro_batches == 1;
  const Seconds after = updates(task);
  const auto search = [&](Dates dates) {
    const Seconds least = once ? best->makespan - after : never;
    OffloadSearch found = search_offloads(model, items, limit, dates, *fluid, least, rows_of_a_search);
    if (!found.complete) stopped = fmt::format("a search stopped after {} rows", rows_of_a_search);
    return found;
  };
  if (!once || best->makespan > (1 + 1e-12) * (*fluid + after)) {
    if (const OffloadSearch found = search(Dates::waited_for); found.tape) {
      const std::optional<PlannedTape> made = simulated_tape(task, model, *found.tape);
      const bool fits = made && made->peak <= limit;
      if (fits && made->makespan < best->makespan) *best = *made;
    }
  }
  Seconds bound = *fluid;
  if (once && best->makespan > (1 + 1e-12) * (*fluid + after)) {
    bound = search(Dates::known).bound.value_or(best->makespan - after);
  }
  best->note = stopped;
  if (once) best->gap = relative_gap(best->makespan, bound + after);
  return known;
}

bool too_many(const std::vector<OffloadItem>& items, const OffloadExactOptions& options) {
  return static_cast<std::int64_t>(items.size()) > options.values;
}

/// Whole values, as the search moves them.
Options greedy_options() {
  Options options(offload_greedy_strategy.options);
  options.change<ChunkOptions>().chunks = 1;
  return options;
}

constexpr auto offload_exact_options = options_of<OffloadExactOptions>(
    option_of<&OffloadExactOptions::values>({
        .name = "values",
        .least = 1,
        .most = 20,
        .help = "largest number of values for which the search runs; with more the plan is that of offload_greedy",
    }),
    store_option);

std::vector<TapeOutcome> offload_exact_tapes(const PartTask& task, const OffloadExactOptions& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  const std::vector<OffloadItem> items = model.has_host ? offload_items(model, 1) : std::vector<OffloadItem>{};
  std::vector<TapeOutcome> outcomes = offload_greedy_strategy.tapes(task, greedy_options(), budgets, before);
  if (!model.has_host) return outcomes;
  if (too_many(items, options)) {
    for (TapeOutcome& outcome : outcomes) {
      PlannedTape* tape = std::get_if<PlannedTape>(&outcome);
      if (tape == nullptr) continue;
      tape->note = fmt::format("no search: {} values, more than values={}; the plan is that of offload_greedy",
                               items.size(), options.values);
    }
    return outcomes;
  }
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    outcomes[b] = outcome(task, model, items, budgets[b], std::move(outcomes[b]));
  }
  return outcomes;
}

std::vector<Bytes> offload_exact_candidates(const PartTask& task, const OffloadExactOptions& options) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr, offload_store(task, options));
  const OffloadModel* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return {};
  if (too_many(offload_items(*model, 1), options)) return offload_greedy_strategy.candidates(task, greedy_options());
  constexpr std::uint32_t levels = 40;
  const std::vector<OffloadItem> items = model->has_host ? offload_items(*model, 1) : std::vector<OffloadItem>{};
  const Bytes least = least_memory(*model, items), most = *std::ranges::max_element(model->memory);
  std::vector<Bytes> budgets{most};
  for (std::uint32_t level = 0; level < levels; ++level) {
    budgets.push_back(least + range_of(most - least, {level, levels}).offset);
  }
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo offload_exact_strategy{
    .name = "offload_exact",
    .family = Family::offloading,
    .summary = "the fastest way to offload whole values in any order, on short chains, with a proven gap",
    .source = "own; the problem is Beaumont, Eyraud-Dubois, Shilova's, Euro-Par 2020",
    .chains_only = false,
    .options = offload_exact_options,
    .tapes = by_options<offload_exact_tapes>,
    .candidates = by_options<offload_exact_candidates>,
    .effort = {.stages = 20, .ops = 40, .trials = {.problems = 50, .stride = 7, .stages = 4, .ops = 6}},
};

}  // namespace plimsoll
