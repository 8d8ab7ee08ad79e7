#include "strategies/compose/levels/plan_on_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/api/front.h"
#include "strategies/compose/levels/joint_planner.h"
#include "strategies/compose/levels/partition_plans.h"
#include "strategies/compose/levels/work_conserving.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/list.h"
#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/sapp_cut.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/pipelining/star_order.h"

namespace plimsoll {
namespace {

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

/// The problem in whose place another one is planned for: a placement cuts a chain between its ops, where the forward
/// and the backward of a stage may be on two devices; or the first of the parts that share a parameter is to update it.
std::optional<Problem> in_its_place(const Problem& problem, const Pass& partitioning, std::span<const Pass> memory) {
  if (problem.chain && partitioning.strategy->family == Family::placement)
    return without_stages(problem, partitioning, memory);
  const LineOptions* line = partitioning.options.get_if<LineOptions>();
  if (line == nullptr || !line->first_updates || problem.first_updates_shared) return std::nullopt;
  std::optional<Problem> made = problem;
  made->first_updates_shared = true;
  return made;
}

std::vector<PartitionOutcome> partitions(const Problem& problem, const Pass& pass,
                                         std::span<const std::optional<Bytes>> budgets) {
  judge(problem, std::span(&pass, 1));
  std::vector<PartitionOutcome> made = pass.strategy->partition(problem, pass.options, budgets);
  EXPECTS(made.size() == budgets.size());
  return made;
}

PartsOutcome outcome_of(const PartitionOutcome& partition, const std::optional<Bytes>& budget,
                        PlansByPartition& plans) {
  if (const Infeasible* why = std::get_if<Infeasible>(&partition)) return *why;
  return plans.of(std::get<std::shared_ptr<const Partition>>(partition)).within(budget);
}

Orders orders_tried(const Pass& partitioning) {
  return is_work_conserving(partitioning) ? Orders::or_work_conserving : Orders::fixed;
}

/// Of pipelines that are made for the budget: whether only where they are cut is.
bool chooses_its_cut_alone(const Pass& pass) {
  if (pass.strategy == &pipeline_search_strategy) return false;
  const LineOptions& line = pass.options.as<LineOptions>();
  return line.cut == sapp_cut || (is_planner_cut(line.cut) && line.cut != star_cut);
}

bool same_partition(const PartitionOutcome& a, const PartitionOutcome& b) {
  using Made = std::shared_ptr<const Partition>;
  const Made *one = std::get_if<Made>(&a), *other = std::get_if<Made>(&b);
  return one != nullptr && other != nullptr && *one == *other;
}

/// Of pipelines that are made for the budget.
bool follows_the_budget(const Pass& pass) {
  if (pass.strategy == &pipeline_search_strategy) return true;
  const LineOptions* line = pass.options.get_if<LineOptions>();
  return line != nullptr && (is_planner_cut(line->cut) || line->cut == sapp_cut);
}

/// What each device needs at most in plain training, its parts each for itself.
Bytes plain_need(const Problem& problem, const Partition& partition) {
  const std::vector<Waiting> waiting = waiting_in(partition);
  std::vector<Bytes> needs(partition.order.size());
  for (std::size_t p = 0; p < waiting.size(); ++p) {
    const PartTask task{problem, partition, id_at<PartId>(p), waiting[p].in_flight, waiting[p].weights};
    needs[task.part().device.index] += plain_training_peak(task);
  }
  return std::ranges::max(needs);
}

/// Partitions that are made for less memory than is unlimited, the same whatever the budget.
class SmallerPartitions {
 public:
  SmallerPartitions(const Problem& problem, const Pass& partitioning, PlansByPartition& plans)
      : problem_(problem), partitioning_(partitioning), plans_(plans) {}

  /// The best of them within the budget, or what they need at least; `needs`: of that for unlimited memory.
  PartsOutcome within(const std::optional<Bytes>& budget, const Partition& unlimited, const Infeasible& needs) {
    if (!chooses_its_cut_alone(partitioning_)) return down_from_the_least(budget, needs);
    if (made_.empty()) add_cuts(unlimited);
    PartsOutcome best = needs;
    for (const Made& made : made_) keep_better(best, plans_.of(made).within(budget));
    return best;
  }

 private:
  using Made = std::shared_ptr<const Partition>;

  Made made_for(Bytes budget) const {
    const std::optional<Bytes> asked = budget;
    return std::get<Made>(partitions(problem_, partitioning_, std::span(&asked, 1)).front());
  }

  /// A planner's cuts, each for a byte less than plain training needs with the one before, until none fits, which is
  /// said by the one for unlimited memory.
  void add_cuts(const Partition& unlimited) {
    constexpr std::size_t most = 50;
    Bytes enough = plain_need(problem_, unlimited);
    while (enough > Bytes{0} && made_.size() < most) {
      enough -= Bytes{1};
      Made made = made_for(enough);
      if (same_turns(*made, unlimited)) return;
      enough = std::min(enough, plain_need(problem_, *made));
      made_.push_back(std::move(made));
    }
  }

  /// The one for no memory at all, which keeps the least; then again and again the one for a byte less than is needed
  /// so far, as long as it needs less. The first that fits.
  PartsOutcome down_from_the_least(const std::optional<Bytes>& budget, Infeasible needs) {
    for (std::size_t k = 0; needs.smallest && *needs.smallest > Bytes{0}; ++k) {
      if (k == made_.size()) made_.push_back(made_for(k == 0 ? Bytes{0} : *needs.smallest - Bytes{1}));
      PartsOutcome outcome = plans_.of(made_[k]).within(budget);
      const Infeasible* none = std::get_if<Infeasible>(&outcome);
      if (none == nullptr) return outcome;
      const bool is_less = needs_less(*none, needs);
      if (is_less) needs = *none;
      if (!is_less && k > 0) break;
    }
    return needs;
  }

  const Problem& problem_;
  const Pass& partitioning_;
  PlansByPartition& plans_;
  std::vector<Made> made_;
};

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
  keep_better(outcomes, plan_on_devices(problem, partitioning, without, budgets));
}

/// A larger budget never gives a slower plan.
void never_slower_with_more(std::vector<PartsOutcome>& outcomes, std::span<const std::optional<Bytes>> budgets) {
  FrontOf<PlannedParts> front;
  for (const PartsOutcome& outcome : outcomes) {
    if (const PlannedParts* made = std::get_if<PlannedParts>(&outcome)) front.add(*made);
  }
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    const PlannedParts *fastest = front.at(budgets[b]), *own = std::get_if<PlannedParts>(&outcomes[b]);
    if (fastest != nullptr && (own == nullptr || fastest->makespan < own->makespan)) outcomes[b] = *fastest;
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

void judge_on_devices(const Problem& problem, const Pass& partitioning, std::span<const Pass> memory,
                      std::span<const std::optional<Bytes>> budgets) {
  const std::optional<Problem> other = in_its_place(problem, partitioning, memory);
  if (other) return judge_on_devices(*other, partitioning, memory, budgets);
  partitions(problem, partitioning, budgets);
  judge(problem, memory);
}

std::vector<PartsOutcome> plan_on_devices(const Problem& problem, const Pass& partitioning,
                                          std::span<const Pass> memory, std::span<const std::optional<Bytes>> budgets) {
  const std::optional<Problem> other = in_its_place(problem, partitioning, memory);
  if (other) return plan_on_devices(*other, partitioning, memory, budgets);
  PlansByPartition plans(problem, memory, orders_tried(partitioning));
  std::vector<PartsOutcome> outcomes;
  if (is_cut_jointly(partitioning)) {
    JointPlanner joint(problem, partitioning, plans);
    for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(joint.within(budget));
  } else {
    // What a planner or a search gives for plain training within a budget may be one that no memory strategy brings
    // into it, or slower than what one makes of that for unlimited memory, or of one for less: a planner's times are
    // not the simulated ones. Its cut for unlimited memory is kept where it fits.
    std::vector<std::optional<Bytes>> asked(budgets.begin(), budgets.end());
    asked.emplace_back(std::nullopt);
    const std::vector<PartitionOutcome> made = partitions(problem, partitioning, asked);
    SmallerPartitions smaller(problem, partitioning, plans);
    for (const std::optional<Bytes>& budget : budgets) {
      const PartitionOutcome& own = made[outcomes.size()];
      PartsOutcome outcome = outcome_of(own, budget, plans);
      const bool is_limited = !same_partition(own, made.back());
      if (is_limited) keep_better(outcome, outcome_of(made.back(), budget, plans));
      const Infeasible* none = std::get_if<Infeasible>(&outcome);
      if (follows_the_budget(partitioning) &&
          (none != nullptr || (is_limited && chooses_its_cut_alone(partitioning)))) {
        const auto& unlimited = std::get<std::shared_ptr<const Partition>>(made.back());
        keep_better(outcome, smaller.within(budget, *unlimited, none == nullptr ? Infeasible{} : *none));
      }
      outcomes.push_back(std::move(outcome));
    }
  }
  if (may_move_nothing(memory)) or_without_last(problem, partitioning, memory, budgets, outcomes);
  never_slower_with_more(outcomes, budgets);
  if (partitioning.strategy->family == Family::placement) name_largest_op(problem, memory, budgets, outcomes);
  return outcomes;
}

std::vector<PartsOutcome> plan_by_simulation(const Problem& problem, std::span<const Pass> memory,
                                             std::span<const std::optional<Bytes>> budgets) {
  PlansByPartition plans(problem, memory, Orders::fixed);
  PartitionPlans& own = plans.of(all_on_one(problem));
  std::vector<PartsOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(own.within(budget));
  never_slower_with_more(outcomes, budgets);
  return outcomes;
}

std::vector<Bytes> front_budgets_by_simulation(const Problem& problem, std::span<const Pass> memory) {
  PlansByPartition plans(problem, memory, Orders::fixed);
  return ascending(plans.of(all_on_one(problem)).peaks_of_levels());
}

std::vector<Bytes> front_budgets_on_devices(const Problem& problem, const Pass& partitioning,
                                            std::span<const Pass> memory) {
  const std::optional<Problem> other = in_its_place(problem, partitioning, memory);
  if (other) return front_budgets_on_devices(*other, partitioning, memory);
  PlansByPartition plans(problem, memory, orders_tried(partitioning));
  if (is_cut_jointly(partitioning)) return JointPlanner(problem, partitioning, plans).peaks_of_levels();
  const std::optional<Bytes> unlimited;
  const PartitionOutcome partition = partitions(problem, partitioning, std::span(&unlimited, 1)).front();
  const auto* made = std::get_if<std::shared_ptr<const Partition>>(&partition);
  if (made == nullptr) return {};
  return ascending(plans.of(*made).peaks_of_levels());
}

PipelineMerit pipeline_merit(const Problem& folded, const Pass& pipeline, std::span<const Pass> memory) {
  const std::optional<Bytes> capacity = folded.platform[folded.platform.devices.front().memory].capacity;
  const PartsOutcome outcome = plan_on_devices(folded, pipeline, memory, std::span(&capacity, 1)).front();
  if (const PlannedParts* made = std::get_if<PlannedParts>(&outcome)) return {false, made->makespan.value};
  const std::optional<Bytes> smallest = std::get<Infeasible>(outcome).smallest;
  return {true, smallest ? static_cast<double>(smallest->count) : std::numeric_limits<double>::infinity()};
}

}  // namespace plimsoll
