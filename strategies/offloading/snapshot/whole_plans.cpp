#include "strategies/offloading/snapshot/whole_plans.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/rockmate/rockmate_graph.h"

namespace plimsoll {
namespace {

/// Above these, in ops, they take seconds.
constexpr std::size_t most_greedy_ops = 10'000, most_ops_in_blocks = 2'500;
constexpr std::size_t forwards_of_blocks[] = {6, 12, 24};  // as in `rockmate`
constexpr std::int64_t greedy_steps = 200;

}  // namespace

WholePlans::WholePlans(const PartTask& task, const OpModel& model, const Range& range,
                       std::function<Seconds(Bytes)> fastest)
    : task_(task), model_(model), range_(range), fastest_(std::move(fastest)), greedy_(task), blocks_(task) {}

/// Those that are not faster.
void WholePlans::add(PlanPool& pool, const OpSequence& sequence, Seconds fastest) const {
  SequencedTape plan{planned_ops(task_, sequence), sequence};
  if (plan.makespan >= fastest) pool.add(std::move(plan));
}

const PlanPool& WholePlans::greedy() {
  if (asked_greedy_ || model_.ops.size() > most_greedy_ops) return greedy_;
  asked_greedy_ = true;
  const Seconds fastest = fastest_(range_.below);
  greedy_sequences(model_, greedy_steps, [&](const OpSequence& plan) { add(greedy_, plan, fastest); });
  return greedy_;
}

/// Budgets below it ask for those of blocks, too.
Bytes WholePlans::blocks_below() {
  constexpr double near_floor = 1.01;
  const Bytes half{range_.below.count / 2};
  if (greedy().empty()) return half;
  const Bytes least = greedy().least();
  return static_cast<double>(least.count) <= near_floor * static_cast<double>(range_.floor.count)
             ? Bytes{0}
             : std::max(half, least);
}

const PlanPool& WholePlans::blocks() {
  if (asked_blocks_ || model_.ops.size() > most_ops_in_blocks) return blocks_;
  asked_blocks_ = true;
  const Bytes from = blocks_below();
  if (from == Bytes{0}) return blocks_;
  Seconds fastest = fastest_(from);
  if (const PlannedTape* plan = greedy().at(from)) fastest = std::min(fastest, plan->makespan);
  for (const std::size_t size : forwards_of_blocks) {
    block_sequences(model_, {.block = size}, [&](const OpSequence& plan) { add(blocks_, plan, fastest); });
  }
  return blocks_;
}

const PlannedTape* WholePlans::at(Bytes budget) {
  if (budget >= range_.below) return nullptr;
  const PlannedTape* best = greedy().at(budget);
  if (budget >= blocks_below()) return best;
  const PlannedTape* plan = blocks().at(budget);
  return best == nullptr || (plan != nullptr && plan->makespan < best->makespan) ? plan : best;
}

std::optional<Bytes> WholePlans::least() {
  std::optional<Bytes> least;
  if (!greedy().empty()) least = greedy().least();
  if (!blocks().empty() && (!least || blocks().least() < *least)) least = blocks().least();
  return least;
}

std::vector<Bytes> WholePlans::budgets() {
  constexpr std::size_t most = 40;
  std::vector<Bytes> all, some;
  if (model_.ops.size() > most_ops_in_blocks) return {};
  for (const PlanPool* plans : {&greedy(), &blocks()}) std::ranges::copy(plans->budgets(), std::back_inserter(all));
  std::ranges::sort(all);
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (k % (1 + all.size() / most) == 0) some.push_back(all[k]);
  }
  return some;
}

}  // namespace plimsoll
