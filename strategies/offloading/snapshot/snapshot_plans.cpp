#include "strategies/offloading/snapshot/snapshot_plans.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/api/front.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/snapshot/sequence_memory.h"

namespace plimsoll {

std::vector<std::uint32_t> snapshot_instants(const PartTask& task) {
  const OpModel model = op_model(task);
  const auto fullest = static_cast<std::uint32_t>(fullest_moment(model, store_all_ops(task)).run);
  const auto last = static_cast<std::uint32_t>(last_forward(model));
  if (fullest == last) return {last};
  return {fullest, last};
}

SnapshotPlans::SnapshotPlans(const PartTask& task, std::uint32_t instant, std::int64_t effort)
    : task_(task),
      effort_(effort),
      model_(op_model(task)),
      instant_(instant),
      front_(task, model_, instant_),
      plain_(plan_of(store_all_ops(task))) {
  const std::vector<SnapshotBend>& bends = front_.bends();
  for (std::size_t k = 0; k + 1 < bends.size(); ++k) parts_.push_back(parts_of(bends[k].again, bends[k + 1].again));
  const std::vector<MemoryOfRun> memory = memory_of_runs(model_, plain_.sequence);
  if (!memory.empty()) beside_ = memory[instant_].during - bends.back().kept;
  find_levels();
}

/// Ops that the first runs again and the second does not, in pieces that have nothing to do with each other, longest
/// first.
std::vector<std::vector<std::uint32_t>> SnapshotPlans::parts_of(const Again& less, const Again& more) const {
  std::vector<std::uint32_t> root(model_.ops.size());
  std::iota(root.begin(), root.end(), 0);
  const auto root_of = [&](std::uint32_t o) {
    while (root[o] != o) o = root[o] = root[root[o]];
    return o;
  };
  const auto is_in = [&](std::uint32_t o) { return less[o] && !more[o]; };
  for (const ModelValue& value : model_.values) {
    if (!value.maker || !is_in(*value.maker)) continue;
    for (const std::uint32_t reader : value.readers) {
      if (is_in(reader)) root[root_of(reader)] = root_of(*value.maker);
    }
  }
  std::vector<std::vector<std::uint32_t>> parts(model_.ops.size());
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (is_in(o)) parts[root_of(o)].push_back(o);
  }
  std::erase_if(parts, [](const auto& part) { return part.empty(); });
  const auto seconds = [&](const std::vector<std::uint32_t>& part) {
    double sum = 0;
    for (const std::uint32_t o : part) sum += seconds_again(model_.ops[o]);
    return sum;
  };
  std::ranges::stable_sort(parts, [&](const auto& a, const auto& b) { return seconds(a) > seconds(b); });
  return parts;
}

Again SnapshotPlans::again_within(Bytes kept) {
  const std::vector<SnapshotBend>& bends = front_.bends();
  const auto above = std::ranges::upper_bound(bends, kept, {}, &SnapshotBend::kept);
  const std::size_t bend = above == bends.begin() ? 0 : static_cast<std::size_t>(above - bends.begin()) - 1;
  KeptBytes now(model_, instant_);
  now.set_all(bends[bend].again);
  for (std::size_t k = bend; k < parts_.size(); ++k) {
    for (const std::vector<std::uint32_t>& part : parts_[k]) {
      if (!std::ranges::all_of(part, [&](std::uint32_t o) { return now.again()[o]; })) continue;
      for (const std::uint32_t o : part) now.set(o, false);
      if (now.kept() <= kept) continue;
      for (const std::uint32_t o : part) now.set(o, true);
    }
  }
  return now.again();
}

std::optional<OpSequence> SnapshotPlans::sequence_of(const Again& again) const {
  Evicted evicted(model_.values.size(), false);
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (!again[o]) continue;
    for (const std::uint32_t v : model_.ops[o].ways.front().makes) evicted[v] = true;
  }
  return recompute_order_at(model_, evicted, instant_);
}

/// Makes more values anew until all fits, as long as that helps.
std::optional<OpSequence> SnapshotPlans::repaired(OpSequence sequence, Bytes budget) const {
  constexpr int patience = 6;
  std::optional<double> least;
  for (int waited = 0; waited < patience; ++waited) {
    const SequenceMemory memory(model_, sequence);
    if (memory.peak() <= budget) return sequence;
    const double above = memory.above(budget);
    if (!least || above < *least) {
      least = above;
      waited = 0;
    }
    std::optional<OpSequence> changed = memory.evicted(budget);
    if (!changed) return std::nullopt;
    sequence = *std::move(changed);
  }
  return std::nullopt;
}

std::optional<SequencedTape> SnapshotPlans::within(Bytes budget) {
  constexpr std::array shares{1.0, 0.96, 0.9, 0.8, 0.6};
  std::optional<SequencedTape> best;
  for (const double share : shares) {
    const double room = share * static_cast<double>((budget - beside_).count);
    const std::optional<OpSequence> made = sequence_of(again_within(Bytes{static_cast<std::int64_t>(room)}));
    if (!made) continue;
    keep_faster(best, fitting(*made, budget));
    if (SequenceMemory(model_, *made).peak() <= budget) break;
  }
  return best;
}

std::optional<SequencedTape> SnapshotPlans::fitting(const OpSequence& sequence, Bytes budget) const {
  const std::optional<OpSequence> fits = repaired(sequence, budget);
  if (!fits) return std::nullopt;
  SequenceMemory memory(model_, *fits);
  memory.leave_out(budget);
  SequencedTape plan = plan_of(memory.sequence());
  EXPECTS(plan.peak <= budget);
  return plan;
}

SequencedTape SnapshotPlans::plan_of(const OpSequence& sequence) const {
  return {planned_ops(task_, sequence), sequence};
}

Seconds SnapshotPlans::time_before() const {
  Seconds sum;
  for (std::uint32_t o = 0; o < instant_; ++o) sum += model_.ops[o].ways.front().time;
  return sum;
}

Seconds SnapshotPlans::work_with(const Again& again) const {
  Seconds sum;
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    sum += Seconds{(again[o] ? 2 : 1) * seconds_again(model_.ops[o])};
  }
  return sum;
}

const SequencedTape* SnapshotPlans::at_level(std::size_t level) {
  const auto [at, is_new] = planned_.try_emplace(level);
  if (is_new) at->second = within(levels_[level]);
  return at->second ? &*at->second : nullptr;
}

/// Down to the first level for which no plan is found.
Bytes SnapshotPlans::least() {
  if (smallest_ != nullptr) return smallest_->peak;
  smallest_ = &plain_;
  for (std::size_t level = std::min(fitting_ + 1, levels_.size()); level-- > 0;) {
    const SequencedTape* less = at_level(level);
    if (less == nullptr) break;
    if (less->peak < smallest_->peak) smallest_ = less;
  }
  return smallest_->peak;
}

const SequencedTape* SnapshotPlans::best(std::optional<Bytes> budget) {
  if (!budget || *budget >= plain_.peak) return &plain_;
  const bool fits = fitting_ < levels_.size() && *budget >= levels_[fitting_];
  if (!fits && *budget < least()) return nullptr;
  const SequencedTape* best = nullptr;
  const auto end = std::ranges::upper_bound(levels_, *budget);
  for (auto level = static_cast<std::size_t>(end - levels_.begin()); level-- > 0;) {
    const Bytes memory = levels_[level];
    if (best != nullptr && front_.bound(memory) >= best->makespan) break;
    if (!fits && memory < smallest_->peak) break;
    const SequencedTape* plan = at_level(level);
    if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
  }
  if (!fits && (best == nullptr || smallest_->makespan < best->makespan)) best = smallest_;
  return best;
}

std::vector<Bytes> SnapshotPlans::budgets() {
  constexpr std::size_t few = 500;
  FrontOf<std::size_t> front;
  front.add(plain_.peak, plain_.makespan, 0);
  for (const SnapshotBend& bend : front_.bends()) {
    if (const SequencedTape* plan = best(beside_ + bend.kept)) front.add(plan->peak, plan->makespan, 0);
  }
  front.add(least(), best(least())->makespan, 0);
  if (levels_.size() > few) return front.budgets();
  for (const Bytes level : levels_) {
    if (const SequencedTape* plan = best(level)) front.add(plan->peak, plan->makespan, 0);
  }
  return front.budgets();
}

/// Close to each other where every trade of the front is a plan as it is; few below, where plans are repaired.
void SnapshotPlans::find_levels() {
  const auto fine = static_cast<std::uint32_t>(192 * effort_), coarse = static_cast<std::uint32_t>(12 * effort_);
  const std::vector<SnapshotBend>& bends = front_.bends();
  const auto level_of = [&](const SnapshotBend& bend) { return beside_ + bend.kept; };
  const auto is_plan = [&](const SnapshotBend& bend) {
    const std::optional<OpSequence> sequence = sequence_of(bend.again);
    return sequence && SequenceMemory(model_, *sequence).peak() <= level_of(bend);
  };
  const auto lowest = std::ranges::partition_point(bends, [&](const SnapshotBend& bend) { return !is_plan(bend); });
  const auto add = [&](Bytes from, Bytes to, std::uint32_t most) {
    if (from >= to) return;
    const auto count = static_cast<std::uint32_t>(std::min<std::int64_t>(most, (to - from).count));
    const std::vector<Bytes> between = budgets_between(from, to, count);
    levels_.insert(levels_.end(), between.begin(), between.end());
  };
  const Bytes plans_from = lowest == bends.end() ? plain_.peak : level_of(*lowest);
  add(level_of(bends.front()), plans_from, coarse);
  fitting_ = levels_.size();
  for (auto bend = lowest; bend != bends.end() && std::next(bend) != bends.end(); ++bend) {
    add(level_of(*bend), level_of(*std::next(bend)), fine);
  }
  if (lowest != bends.end()) levels_.push_back(level_of(bends.back()));
}

}  // namespace plimsoll
