// The strategy `snapshot`: of all that one instant of the iteration may keep, what costs the least, by minimum cuts; as
// a plan that fits elsewhere, too.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/bound/snapshot_cut.h"
#include "sim/core/tolerance.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/snapshot/few_values.h"
#include "strategies/offloading/snapshot/leaving_items.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"
#include "strategies/offloading/snapshot/whole_plans.h"

namespace plimsoll {
namespace {

constexpr Seconds without_end{std::numeric_limits<double>::infinity()};

/// Plans that keep more at the instant than fits: what has no room there leaves for the host before, and comes back
/// after.
class SnapshotCopies {
 public:
  /// Nothing where the device has no host that it reaches both ways.
  /// Values of small graphs leave in up to so many chunks where whole ones leave a gap.
  static std::optional<SnapshotCopies> make(const PartTask&, SnapshotPlans&, std::uint32_t chunks);

  /// The fastest of those for all levels of memory up to the budget; null where none fits. So more memory is never
  /// slower.
  const PlannedTape* best(std::optional<Bytes> budget);
  /// The least level for which there is one, if it is less than that.
  std::optional<Bytes> least(Bytes most);
  /// What no schedule of one micro-batch can beat; infinite where none fits.
  Seconds bound(Bytes budget) const { return bound_->at(budget); }

  /// Levels, of many some.
  std::vector<Bytes> budgets() const;

 private:
  SnapshotCopies(const PartTask&, SnapshotPlans&, std::uint32_t chunks, CopyRate out);

  /// The copies that make it fit, and how long it takes if nobody shares the links.
  struct Placed {
    OffloadModel model;
    std::vector<OffloadMove> moves;
    Seconds makespan;
  };
  /// Nothing, too, where that is no faster than the fastest so far.
  std::optional<Placed> placed(Bytes budget, const Again&, std::optional<Seconds> fastest, std::uint32_t chunks) const;
  /// The fastest of what some shares of all that could be kept lead to, values leaving in up to so many chunks, or the
  /// first.
  enum class Wanted { fastest, any };
  std::optional<Placed> found(Bytes budget, std::uint32_t chunks, Wanted, std::optional<Placed> best) const;
  std::optional<PlannedTape> planned(Bytes budget, const std::optional<Placed>&) const;
  std::optional<PlannedTape> within(Bytes budget) const;
  const PlannedTape* at_level(std::size_t level);
  bool has_plan(std::size_t level);

  /// That one, with what it was asked.
  class Bound {
   public:
    Bound(const PartTask&, OpId instant, BytesPerSecond out);
    Seconds at(Bytes budget);

   private:
    SnapshotModel model_;
    bool all_leaves_;  ///< at once
    SnapshotCuts cuts_;
    std::map<Bytes, Seconds> asked_;
  };

  const PartTask& task_;
  SnapshotPlans& plans_;
  std::uint32_t chunks_;
  CopyRate out_;
  std::unique_ptr<Bound> bound_;
  Seconds before_;                                             // work before the instant
  std::vector<Bytes> levels_;                                  // of memory, ascending
  std::map<std::size_t, std::optional<PlannedTape>> planned_;  // by level
  std::map<std::size_t, bool> has_;                            // by level
};

std::optional<SnapshotCopies> SnapshotCopies::make(const PartTask& task, SnapshotPlans& plans, std::uint32_t chunks) {
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  const OffloadModel* model = std::get_if<OffloadModel>(&plain);
  if (model == nullptr || !model->has_host) return std::nullopt;
  return SnapshotCopies(task, plans, chunks, model->out);
}

SnapshotCopies::Bound::Bound(const PartTask& task, OpId instant, BytesPerSecond out)
    : model_(snapshot_model(task.problem, task.part().device,
                            {.out = out == unlimited_bandwidth ? BytesPerSecond{} : out, .one_call = false})),
      all_leaves_(out == unlimited_bandwidth),
      cuts_(model_, instant_at(model_, instant)) {}

Seconds SnapshotCopies::Bound::at(Bytes budget) {
  if (all_leaves_) return model_.base;
  const auto [asked, is_new] = asked_.try_emplace(budget);
  if (is_new) {
    const InstantBound found = cuts_.bound(budget);
    asked->second = found.needs ? without_end : model_.base + found.extra;
  }
  return asked->second;
}

/// Levels are round numbers, about a thousandth of plain training's memory apart.
SnapshotCopies::SnapshotCopies(const PartTask& task, SnapshotPlans& plans, std::uint32_t chunks, CopyRate out)
    : task_(task),
      plans_(plans),
      chunks_(chunks),
      out_(out),
      bound_(std::make_unique<Bound>(task, plans.model().ops[plans.instant()].id, out.bandwidth)),
      before_(plans.time_before()) {
  const Bytes most = plans.plain_peak();
  std::int64_t step = 1;
  while (10 * step * 200 <= most.count) step *= 10;
  if (step >= 10 && most.count / step > 1600) step = step / 2 * 5;
  const std::int64_t first = (plans.floor_with_copies().count + step - 1) / step;
  for (std::int64_t level = first; level * step < most.count; ++level) levels_.push_back(Bytes{level * step});
}

std::optional<SnapshotCopies::Placed> SnapshotCopies::placed(Bytes budget, const Again& again,
                                                             std::optional<Seconds> fastest,
                                                             std::uint32_t chunks) const {
  if (fastest && plans_.work_with(again) >= *fastest) return std::nullopt;
  const std::optional<OpSequence> sequence = plans_.sequence_of(again);
  if (!sequence) return std::nullopt;
  const Tape tape = tape_of_ops(task_.problem.graph, *sequence);
  std::variant<OffloadModel, std::string> made = offload_model(task_, &tape);
  OffloadModel* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return std::nullopt;
  const std::optional<std::vector<OffloadItem>> leaving = leaving_items(*model, out_, budget, chunks);
  if (!leaving) return std::nullopt;
  std::optional<PlacedCopies> copies = placed_items(*model, *leaving, budget);
  if (!copies) return std::nullopt;
  return Placed{std::move(*model), std::move(copies->moves), copies->makespan};
}

/// Of many ops no larger share is tried than one whose copies already make it wait.
std::optional<SnapshotCopies::Placed> SnapshotCopies::found(Bytes budget, std::uint32_t chunks, Wanted wanted,
                                                            std::optional<Placed> best) const {
  const double room =
      static_cast<double>((budget - plans_.beside()).count) + std::min(out_.bandwidth.value * before_.value, 1e18);
  double best_share = 0, least_waiting = std::numeric_limits<double>::infinity();
  std::vector<Again> tried;
  const auto attempt = [&](double share) {
    if (share > least_waiting || (wanted == Wanted::any && best)) return;
    const Bytes kept{static_cast<std::int64_t>(share * room)};
    if (best && plans_.least_work_within(kept) >= best->makespan) return;
    Again again = plans_.again_within(kept);
    if (std::ranges::find(tried, again) != tried.end()) return;
    std::optional<Placed> made = placed(budget, again, best ? std::optional(best->makespan) : std::nullopt, chunks);
    const bool waits = made && made->makespan > (1 + model_tolerance) * plans_.work_with(again);
    if (waits && !plans_.is_small()) least_waiting = std::min(least_waiting, share);
    tried.push_back(std::move(again));
    if (!made || (best && best->makespan <= made->makespan)) return;
    best = std::move(made);
    best_share = share;
  };
  for (const double share : {1.0, 0.995, 0.985, 0.97, 0.94, 0.88, 0.8, 0.7, 0.6, 0.4, 0.2}) attempt(share);
  for (const double step : {0.0075, 0.003, 0.0015, 0.001}) {
    const double middle = best_share;
    if (middle == 0) break;
    attempt(middle - step);
    attempt(middle + step);
  }
  return best;
}

std::optional<PlannedTape> SnapshotCopies::planned(Bytes budget, const std::optional<Placed>& made) const {
  std::optional<PlannedTape> plan = made ? planned_moves(task_, made->model, made->moves) : std::nullopt;
  return plan && plan->peak <= budget ? plan : std::nullopt;
}

std::optional<PlannedTape> SnapshotCopies::within(Bytes budget) const {
  std::optional<Placed> best = found(budget, 1, Wanted::fastest, std::nullopt);
  for (std::uint32_t chunks = 2; chunks <= chunks_ && plans_.is_small(); chunks *= 2) {
    if (best && best->makespan <= 1.001 * bound(budget)) break;  // near enough, as for `portfolio`
    best = found(budget, chunks, Wanted::fastest, std::move(best));
  }
  return planned(budget, best);
}

/// Of many ops by the first plan, which takes a tenth of the time.
bool SnapshotCopies::has_plan(std::size_t level) {
  if (plans_.is_small() || planned_.contains(level)) return at_level(level) != nullptr;
  const auto [at, is_new] = has_.try_emplace(level);
  if (is_new) at->second = planned(levels_[level], found(levels_[level], 1, Wanted::any, std::nullopt)).has_value();
  return at->second;
}

const PlannedTape* SnapshotCopies::at_level(std::size_t level) {
  const auto [at, is_new] = planned_.try_emplace(level);
  if (is_new) at->second = within(levels_[level]);
  return at->second ? &*at->second : nullptr;
}

const PlannedTape* SnapshotCopies::best(std::optional<Bytes> budget) {
  const PlannedTape* best = nullptr;
  const auto end = budget ? std::ranges::upper_bound(levels_, *budget) : levels_.end();
  for (auto level = static_cast<std::size_t>(end - levels_.begin()); level-- > 0;) {
    if (best != nullptr && bound(levels_[level]) >= best->makespan) break;
    const PlannedTape* plan = at_level(level);
    if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
  }
  return best;
}

/// Of many levels by halving: where there is a plan, there is one above.
std::optional<Bytes> SnapshotCopies::least(Bytes most) {
  constexpr std::size_t few = 100;
  std::size_t low = 0, high = static_cast<std::size_t>(std::ranges::lower_bound(levels_, most) - levels_.begin());
  const std::size_t end = high;
  while (low < high) {
    const std::size_t middle = levels_.size() > few ? low + (high - low) / 2 : low;
    if (has_plan(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == end) return std::nullopt;
  return levels_[low];
}

std::vector<Bytes> SnapshotCopies::budgets() const {
  constexpr std::size_t most = 100;
  std::vector<Bytes> some;
  const std::size_t every = 1 + levels_.size() / most;
  for (std::size_t k = levels_.size(); k-- > 0;) {
    if (k % every == 0) some.push_back(levels_[k]);
  }
  std::ranges::reverse(some);
  return some;
}

enum class OrderOfOps { own, given };

struct SnapshotOptions : OwnMovesOptions, ChunkOptions {
  std::size_t instants = 2;
  std::int64_t effort = 1;
  OrderOfOps order{};
};

/// Plans of one instant without copies, and with them where the device has a host. `levels`: how many times as many of
/// them there are.
struct AtInstant {
  AtInstant(const PartTask& task, const SnapshotOptions& options, std::uint32_t instant, std::int64_t levels)
      : plans(task, instant, levels * options.effort),
        copies(options.offload == OwnMoves::no ? std::optional<SnapshotCopies>()
                                               : SnapshotCopies::make(task, plans, options.chunks)) {}

  const PlannedTape* best(std::optional<Bytes> budget, Seconds known) {
    const PlannedTape* best = copies && budget && *budget < plans.plain_peak() ? copies->best(*budget) : nullptr;
    if (best == nullptr || !budget || plans.bound(*budget) < best->makespan) {
      const PlannedTape* without = plans.best(budget, best != nullptr ? std::min(best->makespan, known) : known);
      if (best == nullptr || (without != nullptr && without->makespan < best->makespan)) best = without;
    }
    return best;
  }

  Seconds bound(Bytes budget) { return copies ? copies->bound(budget) : plans.bound(budget); }

  /// The least budget for which there is a plan, or `most` where it is no less.
  Bytes least(Bytes most) {
    if (copies) most = copies->least(most).value_or(most);
    return plans.least(most);
  }

  std::vector<Bytes> budgets() {
    std::vector<Bytes> budgets = plans.budgets();
    if (!copies) return budgets;
    const std::vector<Bytes> more = copies->budgets();
    budgets.insert(budgets.end(), more.begin(), more.end());
    budgets.push_back(least(plans.plain_peak()));
    return budgets;
  }

  SnapshotPlans plans;
  std::optional<SnapshotCopies> copies;
};

/// The best of several instants.
class Snapshot {
 public:
  Snapshot(const PartTask& task, const SnapshotOptions& options)
      : task_(task), options_(options), ops_(snapshot_instants(task)) {
    ops_.resize(std::min(ops_.size(), options.instants));
    if (instant(0).plans.is_middling()) {
      find_order();
      find_segments();
    }
    const bool is_small = task.part().ops.size() <= FewValues::most_ops;
    if (is_small || !instant(0).copies) {
      std::vector<SnapshotPlans*> plans;
      for (std::size_t k = 0; k < ops_.size(); ++k) plans.push_back(&instant(k).plans);
      few_ = FewValues::make(task, std::move(plans), options.effort);
    }
    if (few_ && is_small) return;  // it asks others, too
    const SnapshotPlans& first = instant(0).plans;
    // With several micro-batches a trade that fits as it is need not be the best there is.
    const Bytes below = task.problem.micro_batches > 1 ? first.plain_peak() : first.fits_from();
    whole_.emplace(task, given_ ? *given_ : first.model(), WholePlans::Range{.floor = first.floor(), .below = below},
                   [this](Bytes budget) { return without_copies(budget); });
  }

  TapeOutcome within(std::optional<Bytes> budget) {
    const PlannedTape* best = own(budget);
    if (budget && whole_ && (best == nullptr || !reaches(best->makespan, instant(0).plans.bound(*budget)))) {
      const PlannedTape* plan = whole_->at(*budget);
      if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
    }
    if (best == nullptr) return Infeasible{why_none(*budget), least()};
    PlannedTape plan = *best;
    if (budget && !(task_.problem.micro_batches > 1 && instant(0).copies)) {
      const bool is_searched = few_ && !instant(0).copies;  // what is proven there is of plans without copies
      Seconds bound = is_searched ? few_->bound(*budget) : Seconds{0};
      for (std::size_t k = 0; k < ops_.size(); ++k) {
        if (plan.makespan > (1 + model_tolerance) * bound) bound = std::max(bound, instant(k).bound(*budget));
      }
      plan.gap = relative_gap(plan.makespan, bound, is_searched ? 2 * model_tolerance : sum_tolerance);
    }
    return plan;
  }

  std::vector<Bytes> budgets() {
    std::vector<Bytes> budgets;
    for (std::size_t k = 0; k < ops_.size(); ++k) std::ranges::copy(instant(k).budgets(), std::back_inserter(budgets));
    if (whole_) std::ranges::copy(whole_->budgets(), std::back_inserter(budgets));
    std::ranges::sort(budgets);
    return budgets;
  }

 private:
  /// Of the instants and of searches for few large values; null where none fits.
  const PlannedTape* own(std::optional<Bytes> budget) {
    const PlannedTape* best = nullptr;
    Seconds bound;
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      if (best != nullptr && (!budget || best->makespan <= (1 + model_tolerance) * bound)) break;
      const PlannedTape* plan = instant(k).best(budget, best != nullptr ? best->makespan : without_end);
      if (budget) bound = std::max(bound, instant(k).bound(*budget));
      if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
    }
    if (budget && few_) {
      if (const PlannedTape* faster = few_->faster(*budget, best)) best = faster;
    }
    return best;
  }

  /// Of graphs that are not small and where no copies take the place of what runs again.
  void find_order() {
    if (options_.order == OrderOfOps::given || task_.problem.chain || instant(0).copies) return;
    if (task_.part().ops.size() > FewValues::most_ops) order_ = ordered_part(task_, ops_);
    if (!order_) return;
    ordered_.emplace(PartTask{task_.problem, order_->partition, task_.id, task_.in_flight});
    ops_ = {order_->instant};
    given_ = instant(0).plans.model();
    instants_.clear();
  }

  /// At the instant that proves the most of half the memory.
  void find_segments() {
    const Bytes half{instant(0).plans.plain_peak().count / 2};
    std::size_t best = 0;
    for (std::size_t k = 1; k < ops_.size(); ++k) {
      if (instant(k).plans.bound(half) > instant(best).plans.bound(half)) best = k;
    }
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      if (k != best) instant(k).plans.leave_segments();
    }
  }

  /// The fastest of the instants; infinite where none fits.
  Seconds without_copies(Bytes budget) {
    Seconds fastest = without_end;
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      if (const PlannedTape* plan = instant(k).plans.best(budget)) fastest = std::min(fastest, plan->makespan);
    }
    return fastest;
  }

  std::string why_none(Bytes budget) {
    const LowerBounds bounds = lower_bounds(task_.problem, 1);
    if (budget >= bounds.memory || !bounds.memory_by) {
      if (const std::optional<OpId> op = instant(0).plans.stuck()) {
        return fmt::format("the inputs of '{}' cannot be made again: later ops overwrite them",
                           task_.problem.graph[*op].name);
      }
      return "no plan was found that needs less";
    }
    return fmt::format("while '{}' runs, {} B must be there", task_.problem.graph[*bounds.memory_by].name,
                       bounds.memory.count);
  }

  /// Each looks only for less than what is known to be enough.
  Bytes least() {
    Bytes least = instant(0).plans.plain_peak();
    if (few_ && few_->least()) least = std::min(least, *few_->least());
    const std::optional<Bytes> whole = whole_ ? whole_->least() : std::nullopt;
    if (whole) least = std::min(least, *whole);
    for (std::size_t k = 0; k < ops_.size(); ++k) least = std::min(least, instant(k).least(least));
    return least;
  }

  /// Made when it is first asked for; of graphs that are not large all at once, since they heed each other's bounds.
  AtInstant& instant(std::size_t k) {
    while (instants_.size() <= k) {
      instants_.emplace_back(ordered_ ? *ordered_ : task_, options_, ops_[instants_.size()], ordered_ ? 4 : 1);
      instants_.back().plans.heed([this](Bytes budget) {
        Seconds most;
        for (const AtInstant& each : instants_) most = std::max(most, each.plans.bound(budget));
        return most;
      });
    }
    return instants_[k];
  }

  const PartTask& task_;
  SnapshotOptions options_;
  std::vector<std::uint32_t> ops_;  // instants
  std::unique_ptr<FewValues> few_;
  std::optional<WholePlans> whole_;
  std::optional<OrderedPart> order_;  // of all plans of instants, if it is not the given one
  std::optional<PartTask> ordered_;   // likewise
  std::optional<OpModel> given_;      // where it is not, the model in the given one
  std::deque<AtInstant> instants_;    // where they stand they stay: copies refer to plans
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
        .help =
            "at how many instants it is decided which values stay, the best of each: where plain training is fullest, "
            "then the last forward",
    }),
    option_of<&SnapshotOptions::order>({
        .name = "order",
        .words = "own given",
        .help = "whether ops may change their places where that lets more of the best trades fit, or stay as they are "
                "given; own: of graphs of 401 to 3,000 ops, without copies",
    }),
    option_of<&ChunkOptions::chunks>({
        .name = "chunks",
        .least = 1,
        .most = 64,
        .help =
            "how many chunks of a value may leave for the host one by one; in parts of up to 1,000 ops, where whole "
            "values leave a gap of more than 0.1 %",
    }),
    option_of<&SnapshotOptions::effort>({
        .name = "effort",
        .least = 1,
        .most = 100,
        .help = "how much work to spend (repeatable, unlike seconds): scales the number of levels of memory at which "
                "plans without copies are made, and the nodes and sizes of searches for few large values",
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
        "keeps at an instant the values that are cheapest to keep and runs the rest again, by minimum cuts, with a "
        "proven gap",
    .source = "own",
    .options = snapshot_options,
    .kind = TapeStrategy{.tapes = by_options<snapshot_tapes>, .candidates = by_options<snapshot_candidates>},
};

}  // namespace plimsoll
