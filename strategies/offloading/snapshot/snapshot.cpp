// The strategy `snapshot`: of all that one instant of the iteration may keep, what costs the least, by minimum cuts; as
// a plan that fits elsewhere, too.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <utility>

#include "sim/measure/lower_bounds.h"
#include "strategies/api/own_moves.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/snapshot/snapshot_copies.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"

namespace plimsoll {
namespace {

struct SnapshotOptions : OwnMovesOptions {
  std::size_t instants = 2;
  std::int64_t effort = 1;
};

/// Plans of one instant without copies, and with them where the device has a host.
struct AtInstant {
  AtInstant(const PartTask& task, const SnapshotOptions& options, std::uint32_t instant)
      : plans(task, instant, options.effort),
        copies(options.offload == OwnMoves::no ? std::optional<SnapshotCopies>() : SnapshotCopies::make(task, plans)) {}

  const PlannedTape* best(std::optional<Bytes> budget) {
    const PlannedTape* best = copies && budget && *budget < plans.plain_peak() ? copies->best(*budget) : nullptr;
    if (best == nullptr || !budget || plans.bound(*budget) < best->makespan) {
      const PlannedTape* without = plans.best(budget);
      if (best == nullptr || (without != nullptr && without->makespan < best->makespan)) best = without;
    }
    return best;
  }

  Seconds bound(Bytes budget) { return copies ? copies->bound(budget) : plans.bound(budget); }

  Bytes least() {
    const std::optional<Bytes> with = copies ? copies->least() : std::nullopt;
    return with ? std::min(*with, plans.least()) : plans.least();
  }

  std::vector<Bytes> budgets() {
    std::vector<Bytes> budgets = plans.budgets();
    if (!copies) return budgets;
    const std::vector<Bytes> more = copies->budgets();
    budgets.insert(budgets.end(), more.begin(), more.end());
    budgets.push_back(least());
    return budgets;
  }

  SnapshotPlans plans;
  std::optional<SnapshotCopies> copies;
};

/// The best of several instants.
class Snapshot {
 public:
  Snapshot(const PartTask& task, const SnapshotOptions& options)
      : problem_(task.problem), repeats_(task.problem.micro_batches > 1) {
    for (const std::uint32_t instant : snapshot_instants(task)) {
      if (instants_.size() < options.instants) instants_.emplace_back(task, options, instant);
    }
  }

  TapeOutcome within(std::optional<Bytes> budget) {
    const PlannedTape* best = nullptr;
    for (AtInstant& instant : instants_) {
      const PlannedTape* plan = instant.best(budget);
      if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
    }
    if (best == nullptr) return Infeasible{why_none(*budget), least()};
    PlannedTape plan = *best;
    if (budget && !(repeats_ && instants_.front().copies)) {
      Seconds bound;
      for (AtInstant& instant : instants_) bound = std::max(bound, instant.bound(*budget));
      plan.gap = relative_gap(plan.makespan, bound);
    }
    return plan;
  }

  std::vector<Bytes> budgets() {
    std::vector<Bytes> budgets;
    for (AtInstant& instant : instants_) std::ranges::copy(instant.budgets(), std::back_inserter(budgets));
    std::ranges::sort(budgets);
    return budgets;
  }

 private:
  std::string why_none(Bytes budget) const {
    const LowerBounds bounds = lower_bounds(problem_, 1);
    if (budget >= bounds.memory || !bounds.memory_by) return "no plan was found that needs less";
    return fmt::format("while '{}' runs, {} B must be there", problem_.graph[*bounds.memory_by].name,
                       bounds.memory.count);
  }

  Bytes least() {
    Bytes least = instants_.front().least();
    for (AtInstant& instant : instants_) least = std::min(least, instant.least());
    return least;
  }

  const Problem& problem_;
  bool repeats_;
  std::deque<AtInstant> instants_;  // where they stand they stay: copies refer to plans
};

constexpr auto snapshot_options = options_of<SnapshotOptions>(
    option_of<&OwnMovesOptions::offload>({
        .name = "offload",
        .words = "auto yes no",
        .help = "whether values may go to the host; none do where the device has no host; auto: unless an offloading "
                "pass after this one moves them",
    }),
    option_of<&SnapshotOptions::instants>({
        .name = "instants",
        .least = 1,
        .most = 2,
        .help = "at how many instants it is decided what is kept, the best of each: where plain training is fullest, "
                "then the last forward",
    }),
    option_of<&SnapshotOptions::effort>({
        .name = "effort",
        .least = 1,
        .most = 100,
        .help = "how much work to spend (repeatable, unlike seconds): scales the number of levels of memory at which "
                "plans without copies are made",
    }));

std::vector<TapeOutcome> snapshot_tapes(const PartTask& task, const SnapshotOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  Snapshot snapshot(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(snapshot.within(budget));
  return or_plain_training(task, budgets, std::move(outcomes));
}

std::vector<Bytes> snapshot_candidates(const PartTask& task, const SnapshotOptions& options) {
  std::vector<Bytes> budgets = Snapshot(task, options).budgets();
  budgets.push_back(plain_training_peak(task));
  std::ranges::sort(budgets);
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo snapshot_strategy{
    .name = "snapshot",
    .family = Family::rematerialization,
    .summary =
        "keeps at one instant what is cheapest to keep and runs the rest again, by minimum cuts, with a proven gap",
    .source = "own",
    .options = snapshot_options,
    .kind = TapeStrategy{.tapes = by_options<snapshot_tapes>, .candidates = by_options<snapshot_candidates>},
};

}  // namespace plimsoll
