// The strategy `offload_greedy`: move to the host, where memory is fullest, what costs least exposed time for its
// bytes; for any chain or graph. Source: own. The measures are Capuchin's free time (Peng et al., ASPLOS 2020) and
// bytes per exposed second.

#include <algorithm>
#include <array>

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/offload_store.h"

namespace plimsoll {
namespace {

constexpr std::size_t fewest_levels = 24;  // of tapes of any length
constexpr std::array all_rules{SelectionRule::bytes_per_exposed, SelectionRule::free_time, SelectionRule::first_made};

/// The fastest placement within a budget, by the estimate.
std::optional<PlacedCopies> best_placement(const OffloadModel& model, std::span<const Selection> selections,
                                           Bytes budget) {
  std::optional<PlacedCopies> best;
  for (const Selection& selection : selections) {
    const std::optional<std::size_t> needed = selection.needed(budget);
    if (!needed) continue;
    std::optional<PlacedCopies> made = placed_items(model, std::span(selection.items).first(*needed), budget);
    if (made && (!best || made->makespan < best->makespan)) best = std::move(made);
  }
  return best;
}

/// A placement at a level of memory, and what it takes at least.
struct PlacedLevel {
  Bytes level;
  PlacedCopies placement;
  std::optional<PlannedTape> plan = {};  ///< once simulated; nothing where the host has too little memory
  bool simulated = false;
};

/// Chunks leave room sooner; whole values are fewer copies, each with its latency. Levels are the same for every
/// budget, so that more memory is never slower; for a budget those up to it are tried in the order of the time that
/// they take if nobody shares the links, as long as that may be the fastest.
class OffloadPlanner {
 public:
  OffloadPlanner(const PartTask& task, const OffloadModel& model, const OffloadOptions& options,
                 std::optional<Bytes> most)
      : task_(task), model_(model) {
    const Bytes full = model.memory.empty() ? Bytes{0} : *std::ranges::max_element(model.memory);
    candidates_.push_back({full, {}});
    for (const Seconds time : model.time) candidates_[0].placement.makespan += time;
    if (!model.has_host) return;
    const std::uint32_t chunks = options.chunks;
    add(1, options.levels, most);
    if (chunks > 1) add(chunks, options.levels, most);
    std::ranges::stable_sort(candidates_, {}, [](const PlacedLevel& c) { return c.placement.makespan; });
  }

  TapeOutcome within(std::optional<Bytes> budget) {
    const PlannedTape* best = nullptr;
    for (PlacedLevel& candidate : candidates_) {
      if (budget && candidate.level > *budget) continue;
      if (best != nullptr && best->makespan <= takes_at_least(candidate)) break;
      const std::optional<PlannedTape>& plan = simulated(candidate);
      if (!plan || (budget && plan->peak > *budget)) continue;
      if (best == nullptr || plan->makespan < best->makespan) best = &*plan;
    }
    if (best != nullptr) return *best;
    return Infeasible{"no more than this can be offloaded", smallest()};
  }

  std::vector<Bytes> levels() const {
    std::vector<Bytes> levels;
    for (const PlacedLevel& candidate : candidates_) levels.push_back(candidate.level);
    std::ranges::sort(levels);
    return levels;
  }

 private:
  void add(std::uint32_t chunks, std::optional<std::int64_t> levels, std::optional<Bytes> most) {
    const std::vector<OffloadItem> items = offload_items(model_, chunks);
    std::vector<Selection> selections;
    selections.reserve(std::size(all_rules));
    for (const SelectionRule rule : all_rules) selections.push_back(select_items(model_, items, rule));
    least_ = selections.front().peaks.back();  // all rules agree
    const Bytes full = selections.front().peaks.front();
    for (const Bytes level : memory_levels(least_, full, levels, model_.positions(), fewest_levels)) {
      if (most && level > std::max(*most, least_)) continue;
      if (std::optional<PlacedCopies> made = best_placement(model_, selections, level)) {
        candidates_.push_back({level, std::move(*made)});
      }
    }
  }

  /// Of an iteration; several micro-batches may overlap at their ends.
  Seconds takes_at_least(const PlacedLevel& candidate) const {
    if (task_.problem.micro_batches > 1) return Seconds{0};
    return (1 - 1e-12) * (candidate.placement.makespan + updates(task_));
  }

  const std::optional<PlannedTape>& simulated(PlacedLevel& candidate) {
    if (!candidate.simulated) candidate.plan = planned_moves(task_, model_, candidate.placement.moves);
    candidate.simulated = true;
    return candidate.plan;
  }

  /// The least budget within which there is a plan.
  std::optional<Bytes> smallest() {
    std::optional<Bytes> least;
    for (PlacedLevel& candidate : candidates_) {
      if (least && candidate.level >= *least) continue;
      const std::optional<PlannedTape>& plan = simulated(candidate);
      if (!plan) continue;
      const Bytes needed = std::max(candidate.level, plan->peak);
      if (!least || needed < *least) least = needed;
    }
    return least;
  }

  const PartTask& task_;
  const OffloadModel& model_;
  Bytes least_;
  std::vector<PlacedLevel> candidates_;  // the fastest first, if nobody shares the links
};

constexpr auto offload_greedy_options = options_of<OffloadOptions>(copy_chunks_option, levels_option, store_option);

std::vector<TapeOutcome> offload_greedy_tapes(const PartTask& task, const OffloadOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  std::optional<Bytes> most = Bytes{0};  // where the host may be full, the least feasible budget may be any level
  if (model.host_capacity != largest_bytes) most.reset();
  for (const std::optional<Bytes>& budget : budgets) {
    if (most) most = budget ? std::optional(std::max(*most, *budget)) : std::nullopt;
  }
  OffloadPlanner planner(task, model, options, most);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(planner.within(budget));
  return with_fluid_gaps(task, model, budgets, std::move(outcomes));
}

std::vector<Bytes> offload_greedy_candidates(const PartTask& task, const OffloadOptions& options) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr, offload_store(task, options));
  if (std::holds_alternative<std::string>(model)) return {};
  return OffloadPlanner(task, std::get<OffloadModel>(model), options, std::nullopt).levels();
}

}  // namespace

extern constinit const StrategyInfo offload_greedy_strategy{
    .name = "offload_greedy",
    .family = Family::offloading,
    .summary = "where memory is fullest, offloads the values that free the most bytes per second of exposed copying",
    .source = "own; free time as measured by Capuchin, Peng et al., ASPLOS 2020",
    .options = offload_greedy_options,
    .kind =
        TapeStrategy{.tapes = by_options<offload_greedy_tapes>, .candidates = by_options<offload_greedy_candidates>},
};

}  // namespace plimsoll
