// The strategy `snapshot`: of all that one instant of the iteration may keep, what costs the least, by minimum cuts; as
// a plan that fits elsewhere, too.

#include <algorithm>
#include <utility>

#include "strategies/api/own_moves.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/rematerialization/snapshot/snapshot_copies.h"
#include "strategies/rematerialization/snapshot/snapshot_plans.h"

namespace plimsoll {
namespace {

struct SnapshotOptions : OwnMovesOptions {
  std::int64_t effort = 1;
};

/// Plans without copies, and with them where the device has a host.
class Snapshot {
 public:
  Snapshot(const PartTask& task, const SnapshotOptions& options)
      : repeats_(task.problem.micro_batches > 1),
        plans_(task, options.effort),
        copies_(options.offload == OwnMoves::no ? std::optional<SnapshotCopies>()
                                                : SnapshotCopies::make(task, plans_)) {}

  TapeOutcome within(std::optional<Bytes> budget) {
    const PlannedTape* best = copies_ && budget && *budget < plans_.plain_peak() ? copies_->best(budget) : nullptr;
    if (best == nullptr || !budget || plans_.bound(*budget) < best->makespan) {
      const PlannedTape* without = plans_.best(budget);
      if (best == nullptr || (without != nullptr && without->makespan < best->makespan)) best = without;
    }
    if (best == nullptr) return Infeasible{"no plan was found that needs less", least()};
    PlannedTape plan = *best;
    if (budget && !(copies_ && repeats_)) {
      plan.gap = relative_gap(plan.makespan, copies_ ? copies_->bound(*budget) : plans_.bound(*budget));
    }
    return plan;
  }

  std::vector<Bytes> budgets() {
    std::vector<Bytes> budgets = plans_.budgets();
    if (copies_) {
      const std::vector<Bytes> more = copies_->budgets();
      budgets.insert(budgets.end(), more.begin(), more.end());
      budgets.push_back(least());
    }
    return budgets;
  }

 private:
  Bytes least() {
    const std::optional<Bytes> with = copies_ ? copies_->least() : std::nullopt;
    return with ? std::min(*with, plans_.least()) : plans_.least();
  }

  bool repeats_;
  SnapshotPlans plans_;
  std::optional<SnapshotCopies> copies_;
};

constexpr auto snapshot_options = options_of<SnapshotOptions>(
    option_of<&OwnMovesOptions::offload>({
        .name = "offload",
        .words = "auto yes no",
        .help = "whether values may go to the host; none do where the device has no host; auto: unless an offloading "
                "pass after this one moves them",
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
