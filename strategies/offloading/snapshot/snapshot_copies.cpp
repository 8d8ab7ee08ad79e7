#include "strategies/offloading/snapshot/snapshot_copies.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "strategies/offloading/snapshot/sequence_memory.h"

namespace plimsoll {
namespace {

/// Of what is kept from the forward to the backward as much as the budget takes, where memory is fullest the values
/// whose last reader in the forward is the first. That is also the order in which they leave, so that none waits for
/// the end of another's use. Nothing where all is not enough.
std::optional<std::vector<OffloadItem>> leaving_items(OffloadModel& model, const CopyRate& out, Bytes budget) {
  std::vector<OffloadItem> items;
  for (const std::uint32_t g : saved_gaps(model)) {
    OffloadGap& gap = model.gaps[g];
    gap.made = gap.from;
    const bool is_worth_it = gap.bytes / out.bandwidth >= out.latency && gap.bytes > Bytes{0};
    if (gap.holds_positions() && is_worth_it) items.push_back({g, {}, gap.bytes});
  }
  std::vector<std::int64_t> memory;
  for (const Bytes bytes : model.memory) memory.push_back(bytes.count);
  RangeMaximum left(memory);
  std::vector<OffloadItem> leaving;
  while (left.most() > budget.count) {
    const std::size_t full = left.where();
    const auto covers = [&](const OffloadItem& item) {
      return model.gaps[item.gap].from < full && full < model.gaps[item.gap].until;
    };
    const auto first = std::ranges::find_if(items, covers);
    if (first == items.end()) return std::nullopt;
    const OffloadGap& gap = model.gaps[first->gap];
    left.add(gap.from + 1, gap.until, -first->bytes.count);
    leaving.push_back(*first);
    items.erase(first);
  }
  return leaving;
}

}  // namespace

std::optional<SnapshotCopies> SnapshotCopies::make(const PartTask& task, SnapshotPlans& plans) {
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  const OffloadModel* model = std::get_if<OffloadModel>(&plain);
  if (model == nullptr || !model->has_host) return std::nullopt;
  return SnapshotCopies(task, plans, model->out);
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
    asked->second = found.needs ? Seconds{std::numeric_limits<double>::infinity()} : model_.base + found.extra;
  }
  return asked->second;
}

/// Levels are round numbers, about a thousandth of plain training's memory apart.
SnapshotCopies::SnapshotCopies(const PartTask& task, SnapshotPlans& plans, CopyRate out)
    : task_(task),
      plans_(plans),
      out_(out),
      bound_(std::make_unique<Bound>(task, plans.model().ops[plans.instant()].id, out.bandwidth)),
      before_(plans.time_before()) {
  const Bytes most = plans.plain_peak();
  std::int64_t step = 1;
  while (10 * step * 200 <= most.count) step *= 10;
  if (step >= 10 && most.count / step > 1600) step = step / 2 * 5;
  const std::int64_t first = plans.model().resident.count / step;
  for (std::int64_t level = first; level * step < most.count; ++level) levels_.push_back(Bytes{level * step});
}

std::optional<SnapshotCopies::Placed> SnapshotCopies::placed(Bytes budget, double share,
                                                             std::optional<Seconds> fastest) const {
  const double room =
      static_cast<double>((budget - plans_.beside()).count) + std::min(out_.bandwidth.value * before_.value, 1e18);
  const Again again = plans_.again_within(Bytes{static_cast<std::int64_t>(share * room)});
  if (fastest && plans_.work_with(again) >= *fastest) return std::nullopt;
  const std::optional<OpSequence> sequence = plans_.sequence_of(again);
  if (!sequence) return std::nullopt;
  const PlannedTape tape = planned_ops(task_, *sequence);
  std::variant<OffloadModel, std::string> made = offload_model(task_, &tape.tape);
  OffloadModel* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return std::nullopt;
  const std::optional<std::vector<OffloadItem>> leaving = leaving_items(*model, out_, budget);
  if (!leaving) return std::nullopt;
  std::optional<PlacedCopies> copies = placed_items(*model, *leaving, budget);
  if (!copies) return std::nullopt;
  return Placed{std::move(*model), std::move(copies->moves), copies->makespan};
}

std::optional<PlannedTape> SnapshotCopies::within(Bytes budget) const {
  std::optional<Placed> best;
  double best_share = 0;
  const auto attempt = [&](double share) {
    std::optional<Placed> made = placed(budget, share, best ? std::optional(best->makespan) : std::nullopt);
    if (!made || (best && best->makespan <= made->makespan)) return;
    best = std::move(made);
    best_share = share;
  };
  for (const double share : {1.0, 0.97, 0.94, 0.88, 0.8, 0.7, 0.6, 0.4, 0.2}) attempt(share);
  for (const double step : {0.015, 0.0075, 0.003, 0.0015}) {
    const double middle = best_share;
    if (!best) break;
    attempt(middle - step);
    attempt(middle + step);
  }
  if (!best) return std::nullopt;
  std::optional<PlannedTape> plan = planned_moves(task_, best->model, best->moves);
  if (!plan || plan->peak > budget) return std::nullopt;
  return plan;
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
std::optional<Bytes> SnapshotCopies::least() {
  constexpr std::size_t few = 100;
  std::size_t low = 0, high = levels_.size();
  while (low < high) {
    const std::size_t middle = levels_.size() > few ? low + (high - low) / 2 : low;
    if (at_level(middle) != nullptr) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == levels_.size()) return std::nullopt;
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

}  // namespace plimsoll
