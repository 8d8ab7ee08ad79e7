#include "strategies/plan_on_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/expects.h"
#include "sim/core/lower_bounds.h"
#include "sim/io/input_error.h"
#include "strategies/joint_planner.h"
#include "strategies/list.h"
#include "strategies/parts_planner.h"
#include "strategies/pipelining/planner_cuts.h"
#include "strategies/pipelining/star_order.h"
#include "strategies/work_conserving.h"

namespace plimsoll {
namespace {

/// A placement cuts a chain between its ops: the forward and the backward of a stage may be on two devices.
bool cuts_by_ops(const Problem& problem, const Pass& partitioning) {
  return problem.chain && partitioning.strategy->family == Family::placement;
}

/// The chain's graph, whose parts need not be rows of stages. Throws InputError where a strategy plans by stages.
Problem without_stages(Problem problem, const Pass& placement, std::span<const Pass> memory) {
  for (const Pass& pass : memory) {
    if (!pass.strategy->chains_only && pass.strategy->family != Family::compression) continue;
    throw InputError(fmt::format("strategy '{}' plans the stages of '{}', and '{}' cuts it by ops", pass.strategy->name,
                                 problem.graph.name, placement.strategy->name));
  }
  problem.chain.reset();
  problem.index.reset();
  return problem;
}

/// Whether the first of the parts that share a parameter is to update it, and the problem does not say so yet.
bool asks_first_to_update(const Problem& problem, const Pass& pass) {
  return !problem.first_updates_shared && has_option(*pass.strategy, "shared_updates") &&
         pass.options.text("shared_updates") == "first";
}

Problem with_first_to_update(Problem problem) {
  problem.first_updates_shared = true;
  return problem;
}

std::vector<PartitionOutcome> partitions(const Problem& problem, const Pass& pass,
                                         std::span<const std::optional<Bytes>> budgets) {
  judge(problem, std::span(&pass, 1));
  std::vector<PartitionOutcome> made = pass.strategy->partition(problem, pass.options, budgets);
  EXPECTS(made.size() == budgets.size());
  return made;
}

PartsOutcome outcome_of(const PartitionOutcome& partition, const std::optional<Bytes>& budget,
                        PartsPlanners& planners) {
  if (const Infeasible* why = std::get_if<Infeasible>(&partition)) return *why;
  return planners.of(std::get<std::shared_ptr<const Partition>>(partition)).within(budget);
}

bool is_work_conserving(const Pass& pass) {
  return has_option(*pass.strategy, "work_conserving") && pass.options.text("work_conserving") == "yes";
}

bool less_needed(const Infeasible& a, const Infeasible& b) {
  return a.smallest && (!b.smallest || *a.smallest < *b.smallest);
}

/// Of published planners that choose nothing but the cut.
bool keeps_its_cut(const Pass& pass) {
  if (!has_option(*pass.strategy, "cut")) return false;
  const std::string_view cut = pass.options.text("cut");
  return is_planner_cut(cut) && cut != star_cut;
}

bool same_partition(const PartitionOutcome& a, const PartitionOutcome& b) {
  using Made = std::shared_ptr<const Partition>;
  const Made *one = std::get_if<Made>(&a), *other = std::get_if<Made>(&b);
  return one != nullptr && other != nullptr && *one == *other;
}

bool is_better(const PartsOutcome& a, const PartsOutcome& b) {
  const PlannedParts *one = std::get_if<PlannedParts>(&a), *other = std::get_if<PlannedParts>(&b);
  if (one != nullptr && other != nullptr) return one->makespan < other->makespan;
  if (one != nullptr || other != nullptr) return one != nullptr;
  return less_needed(std::get<Infeasible>(a), std::get<Infeasible>(b));
}

/// Where one op alone needs more than the budget, whoever runs it: that is why there is no plan.
void name_largest_op(const Problem& problem, std::span<const Pass> memory,
                     std::span<const std::optional<Bytes>> budgets, std::vector<PartsOutcome>& outcomes) {
  const auto packs = [](const Pass& pass) { return pass.strategy->family == Family::compression; };
  if (std::ranges::any_of(memory, packs)) return;
  std::optional<LowerBounds> bounds;
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    Infeasible* none = std::get_if<Infeasible>(&outcomes[b]);
    if (none == nullptr || !budgets[b]) continue;
    if (!bounds) bounds = lower_bounds(problem, problem.platform.devices.size(), Stays::nothing);
    if (!bounds->memory_by || *budgets[b] >= bounds->memory) continue;
    none->reason = fmt::format("'{}' alone needs {} B", problem.graph[*bounds->memory_by].name, bounds->memory.count);
  }
}

/// Whether the last pass moves activations only as far as that is faster, so that it may as well move none.
bool may_move_nothing(std::span<const Pass> memory) {
  const std::array<const StrategyInfo*, 4> chooses{&offload_greedy_strategy, &offload_fractional_strategy,
                                                   &offload_dp_strategy, &offload_exact_strategy};
  return !memory.empty() && std::ranges::find(chooses, memory.back().strategy) != chooses.end();
}

/// Parts are planned at levels of memory, other ones with the last pass than without: what is faster, or fits, without
/// it is taken as it is.
void or_without_last(const Problem& problem, const Pass& partitioning, std::span<const Pass> memory,
                     std::span<const std::optional<Bytes>> budgets, std::vector<PartsOutcome>& outcomes) {
  const Pass plain = pass_of(store_all_strategy);
  const std::span<const Pass> without = memory.size() > 1 ? memory.first(memory.size() - 1) : std::span(&plain, 1);
  std::vector<PartsOutcome> others = plan_on_devices(problem, partitioning, without, budgets);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (is_better(others[b], outcomes[b])) outcomes[b] = std::move(others[b]);
  }
}

/// A larger budget never gives a slower plan.
void never_slower_with_more(std::vector<PartsOutcome>& outcomes, std::span<const std::optional<Bytes>> budgets) {
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    for (std::size_t other = 0; other < outcomes.size(); ++other) {
      const PlannedParts* cheaper = std::get_if<PlannedParts>(&outcomes[other]);
      if (cheaper == nullptr || (budgets[b] && cheaper->peak > *budgets[b])) continue;
      const PlannedParts* own = std::get_if<PlannedParts>(&outcomes[b]);
      if (own == nullptr || cheaper->makespan < own->makespan) outcomes[b] = *cheaper;
    }
  }
}

std::vector<Bytes> ascending(std::vector<Bytes> peaks) {
  std::ranges::sort(peaks);
  peaks.erase(std::unique(peaks.begin(), peaks.end()), peaks.end());
  return peaks;
}

std::shared_ptr<const Partition> all_on_one(const Problem& problem) {
  Partition made = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  if (problem.chain) {  // parts of chains are planned in two pieces
    made.parts.front().cut_before_backward = true;
    made.order.front().clear();
    for (std::uint32_t m = 0; m < problem.micro_batches; ++m) {
      for (const PieceName piece : {PieceName::forward, PieceName::backward}) {
        made.order.front().push_back({PartId{0}, m, number_of(piece)});
      }
    }
  }
  return std::make_shared<const Partition>(std::move(made));
}

}  // namespace

std::vector<PartsOutcome> plan_on_devices(const Problem& problem, const Pass& partitioning,
                                          std::span<const Pass> memory, std::span<const std::optional<Bytes>> budgets) {
  if (cuts_by_ops(problem, partitioning)) {
    return plan_on_devices(without_stages(problem, partitioning, memory), partitioning, memory, budgets);
  }
  if (asks_first_to_update(problem, partitioning)) {
    return plan_on_devices(with_first_to_update(problem), partitioning, memory, budgets);
  }
  PartsPlanners planners(problem, memory);
  std::vector<PartsOutcome> outcomes;
  if (is_cut_jointly(partitioning)) {
    JointPlanner joint(problem, partitioning, planners);
    for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(joint.within(budget));
  } else {
    // What a planner or a search gives for plain training within a budget may be one that no memory strategy brings
    // into it, or slower than what one makes of that for unlimited memory. A planner's cut is kept where it fits.
    std::vector<std::optional<Bytes>> asked(budgets.begin(), budgets.end());
    asked.emplace_back(std::nullopt);
    const std::vector<PartitionOutcome> made = partitions(problem, partitioning, asked);
    for (const std::optional<Bytes>& budget : budgets) {
      const PartitionOutcome& own = made[outcomes.size()];
      PartsOutcome outcome = outcome_of(own, budget, planners);
      if (!same_partition(own, made.back())) {
        PartsOutcome other = outcome_of(made.back(), budget, planners);
        const bool fits = std::holds_alternative<PlannedParts>(outcome);
        if (!(fits && keeps_its_cut(partitioning)) && is_better(other, outcome)) outcome = std::move(other);
      }
      outcomes.push_back(std::move(outcome));
    }
  }
  if (may_move_nothing(memory)) or_without_last(problem, partitioning, memory, budgets, outcomes);
  if (is_work_conserving(partitioning)) {
    for (PartsOutcome& outcome : outcomes) {
      PlannedParts* made = std::get_if<PlannedParts>(&outcome);
      if (made != nullptr) *made = or_work_conserving(problem, std::move(*made));
    }
  }
  never_slower_with_more(outcomes, budgets);
  if (partitioning.strategy->family == Family::placement) name_largest_op(problem, memory, budgets, outcomes);
  return outcomes;
}

std::vector<PartsOutcome> plan_by_simulation(const Problem& problem, std::span<const Pass> memory,
                                             std::span<const std::optional<Bytes>> budgets) {
  PartsPlanners planners(problem, memory);
  PartsPlanner& planner = planners.of(all_on_one(problem));
  std::vector<PartsOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(planner.within(budget));
  never_slower_with_more(outcomes, budgets);
  return outcomes;
}

std::vector<Bytes> front_budgets_by_simulation(const Problem& problem, std::span<const Pass> memory) {
  PartsPlanners planners(problem, memory);
  return ascending(planners.of(all_on_one(problem)).peaks_of_levels());
}

std::vector<Bytes> front_budgets_on_devices(const Problem& problem, const Pass& partitioning,
                                            std::span<const Pass> memory) {
  if (cuts_by_ops(problem, partitioning)) {
    return front_budgets_on_devices(without_stages(problem, partitioning, memory), partitioning, memory);
  }
  if (asks_first_to_update(problem, partitioning)) {
    return front_budgets_on_devices(with_first_to_update(problem), partitioning, memory);
  }
  PartsPlanners planners(problem, memory);
  if (is_cut_jointly(partitioning)) return JointPlanner(problem, partitioning, planners).peaks_of_levels();
  const std::optional<Bytes> unlimited;
  const PartitionOutcome partition = partitions(problem, partitioning, std::span(&unlimited, 1)).front();
  const auto* made = std::get_if<std::shared_ptr<const Partition>>(&partition);
  if (made == nullptr) return {};
  return ascending(planners.of(*made).peaks_of_levels());
}

}  // namespace plimsoll
