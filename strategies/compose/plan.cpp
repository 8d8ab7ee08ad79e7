#include "strategies/compose/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "sim/core/expects.h"
#include "sim/core/pinned.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "sim/model/stage_chain.h"
#include "strategies/compose/joint_planner.h"
#include "strategies/compose/plan_on_devices.h"
#include "strategies/hybrid/chosen_width.h"
#include "strategies/hybrid/data_axis.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {
namespace {

/// The passes that make tapes; where there are none, rotor if ranks' operators and stages are cut together, else plain
/// training.
std::vector<Pass> memory_passes(std::span<const Pass> passes) {
  std::vector<Pass> memory(passes.begin(), passes.end());
  std::erase_if(memory, [](const Pass& pass) { return !pass.strategy->makes_tapes(); });
  if (!memory.empty()) return memory;
  const bool cuts_operators =
      std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->family == Family::hybrid; });
  const bool is_joint = cuts_operators && std::ranges::any_of(passes, is_cut_jointly);
  memory.push_back(pass_of(is_joint ? rotor_strategy : store_all_strategy));
  return memory;
}

/// The pass that makes partitions; null where all runs on one device.
const Pass* partitioning(std::span<const Pass> passes) {
  const auto found = std::ranges::find_if(passes, [](const Pass& pass) { return pass.strategy->partitions(); });
  return found == passes.end() ? nullptr : &*found;
}

/// What updates on the device take with their workspaces, whatever ran before them: planners do not see it. Who moves
/// parameters or states plans the updates itself.
Bytes least_for_updates(const PartTask& task, std::span<const Pass> memory) {
  if (std::ranges::any_of(memory, [](const Pass& pass) { return pass.strategy->moves_parameters(); })) return {};
  return tape_cost(task.problem, task.part(), planned_ops(task, store_all_ops(task)).tape).at_updates;
}

/// The outcome of planners within a budget, for a problem whose updates take so much.
TapeOutcome with_updates(TapeOutcome outcome, Bytes updates, std::optional<Bytes> budget) {
  if (Infeasible* none = std::get_if<Infeasible>(&outcome)) {
    if (none->smallest) none->smallest = std::max(*none->smallest, updates);
    return outcome;
  }
  if (budget && *budget < updates) return Infeasible{"updates with their workspaces need more", updates};
  auto& tape = std::get<PlannedTape>(outcome);
  tape.peak = std::max(tape.peak, updates);
  return outcome;
}

std::vector<PartsOutcome> on_one_device(const Problem& problem, std::span<const Pass> memory,
                                        std::span<const std::optional<Bytes>> budgets) {
  if (has_pinned_ops(problem.graph)) {
    throw InputError(fmt::format("ops of '{}' are pinned to the host: begin with a placement, such as one_device",
                                 problem.graph.name));
  }
  const auto partition = std::make_shared<const Partition>(
      one_device(problem.graph, problem.micro_batches, problem.platform.devices.size()));
  const PartTask task{problem, *partition, PartId{0}};
  std::vector<TapeOutcome> tapes = judged_tapes_of_passes(task, memory, budgets);
  const Bytes updates = least_for_updates(task, memory);
  std::vector<PartsOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    TapeOutcome outcome = with_updates(std::move(tapes[b]), updates, budgets[b]);
    if (Infeasible* none = std::get_if<Infeasible>(&outcome)) {
      outcomes.emplace_back(std::move(*none));
      continue;
    }
    auto& tape = std::get<PlannedTape>(outcome);
    PlannedParts& made = std::get<PlannedParts>(outcomes.emplace_back(PlannedParts{
        partition, {}, tape.peak, tape.makespan, tape.gap, std::move(tape.note), std::move(tape.candidates)}));
    made.tapes.push_back(std::move(tape.tape));
  }
  return outcomes;
}

/// Passes whose transforms have been applied.
bool is_for(const Problem& problem, std::span<const Pass> passes) {
  const auto changes = [](const Pass& pass) { return changes_problem(*pass.strategy); };
  if (passes.empty() || (!problem.transformed && std::ranges::any_of(passes, changes))) return false;
  return backward_for(passes) == Backward::whole || !problem.index || !problem.index->weight.empty();
}

bool plans_stages(const Pass& pass) {
  return pass.strategy->chains_only || pass.strategy->family == Family::pipelining ||
         (pass.strategy->family == Family::hybrid && pass.strategy->partitions());
}

/// A graph whose ops are of stages, for pipelines of these.
Problem as_stages(Problem problem, std::span<const Pass> passes) {
  const auto cuts_chains = [](const Pass& pass) {
    return pass.strategy->chains_only && pass.strategy->family == Family::pipelining;
  };
  const auto pipeline = std::ranges::find_if(passes, cuts_chains);
  if (problem.chain || pipeline == passes.end()) return problem;
  std::variant<Problem, std::string> made = as_chain(std::move(problem), backward_for(passes));
  if (const std::string* why = std::get_if<std::string>(&made)) {
    throw InputError(fmt::format("{}: {}", pipeline->strategy->name, *why));
  }
  Problem chain = std::get<Problem>(std::move(made));
  chain.notes.push_back(
      fmt::format("'{}' is planned as a chain of its {} stages", chain.chain->name, chain.chain->stages.size()));
  return chain;
}

std::uint32_t copies_in(const Mesh& mesh) {
  return mesh.axes.empty() || !mesh.axes.front().shares_micro_batches ? 1 : mesh.axes.front().ranks;
}

/// Of what a pass cuts; unset: as many as it finds best.
std::optional<std::uint32_t> copies_asked(const Pass& pass) {
  const SplitOptions* splits = pass.options.get_if<SplitOptions>();
  return splits == nullptr ? 1 : splits->replicas;
}

/// Why a pass has no problem to plan for.
struct Refused {
  std::string_view strategy;
  CannotBuild cannot;
  bool decides = false;
};

/// Of the pass at a place of the pipeline, what it decides about the problem.
using Deciding = std::function<std::variant<Decisions, CannotBuild>(const Problem&, std::size_t)>;

/// The problem as the pass at a place leaves it.
std::variant<Problem, Refused> behind_pass(const Problem& problem, std::span<const Pass> passes, std::size_t p,
                                           const Deciding& decide) {
  Pass pass = passes[p];
  if (pass.strategy->decides()) {
    std::variant<Decisions, CannotBuild> decisions = decide(problem, p);
    std::variant<Problem, CannotBuild> made;
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&decisions)) {
      made = std::move(*cannot);
    } else {
      made = built(problem, std::get<Decisions>(decisions));
    }
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&made)) {
      return Refused{pass.strategy->name, std::move(*cannot), true};
    }
    return std::get<Problem>(std::move(made));
  }
  const auto places = [](const Pass& other) { return other.strategy->family == Family::placement; };
  const auto shares_micro_batches = [](const Pass& other) { return other.strategy->shares_micro_batches(); };
  // A placement may part what a bucket would sum together.
  const bool is_data = pass.options.get_if<DataOptions>() != nullptr;
  if (is_data && std::ranges::any_of(passes, places)) pass.options.change<DataOptions>().buckets.reset();
  // What is shared out within replicas is summed where it lies.
  const bool is_shared_out = std::ranges::any_of(passes.subspan(p + 1), shares_micro_batches);
  if (is_data && is_shared_out && pass.options.as<DataOptions>().bucket_view == BucketView::automatic) {
    pass.options.change<DataOptions>().bucket_view = BucketView::yes;
  }
  std::variant<Problem, std::string> made = pass.strategy->transform(problem, pass.options);
  if (std::string* why = std::get_if<std::string>(&made)) return Refused{pass.strategy->name, {std::move(*why)}};
  return std::get<Problem>(std::move(made));
}

std::variant<Problem, Refused> transformed_by(Problem problem, std::span<const Pass> passes, const Deciding& decide) {
  for (std::size_t p = 0; p < passes.size(); ++p) {
    if (!changes_problem(*passes[p].strategy)) continue;
    std::variant<Problem, Refused> made = behind_pass(problem, passes, p, decide);
    if (std::holds_alternative<Refused>(made)) return made;
    problem = std::get<Problem>(std::move(made));
    problem.transformed = true;
  }
  if (!problem.mesh) return as_stages(std::move(problem), passes);
  return for_planners(std::move(problem), std::ranges::any_of(passes, plans_stages), backward_for(passes),
                      passes.front().strategy->name);
}

/// A gap that is nothing but the rounding of sums is none.
std::optional<double> beyond_rounding(std::optional<double> gap) {
  constexpr double rounding = 1e-12;
  return gap && *gap < rounding ? 0 : gap;
}

}  // namespace

Backward backward_for(std::span<const Pass> passes) {
  const bool splits =
      std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->splits_backward(pass.options); });
  return splits ? Backward::split : Backward::whole;
}

Inner inner_for(std::span<const Pass> passes) {
  const auto packs = [](const Pass& pass) { return pass.strategy->family == Family::compression; };
  return std::ranges::any_of(passes, packs) ? Inner::apart : Inner::together;
}

std::uint32_t slices_of(std::span<const Pass> passes) {
  std::uint32_t slices = 1;
  for (const Pass& pass : passes) {
    slices *= pass.strategy->slices(pass.options);
  }
  return slices;
}

std::uint32_t replicas_of(std::span<const Pass> passes, std::size_t devices) {
  std::uint32_t left = static_cast<std::uint32_t>(devices), shares = 1;
  for (const Pass& pass : passes) {
    const std::uint32_t ranks = pass.strategy->ranks(pass.options, left);
    left = std::max(left / ranks, 1U);
    if (pass.strategy->shares_micro_batches()) shares *= ranks;
    shares *= copies_asked(pass).value_or(1);
  }
  return shares;
}

Problem transformed(Problem problem, std::span<const Pass> passes) {
  const auto searched = [&](const Problem& before, std::size_t p) -> std::variant<Decisions, CannotBuild> {
    const Pass& pass = passes[p];
    const Deadline deadline(pass.strategy->seconds(pass.options));
    std::variant<Decisions, std::string> made =
        leaves_width_open(passes.subspan(p))
            ? at_chosen_width(before, passes.subspan(p), memory_passes(passes), deadline)
            : pass.strategy->decide(before, pass.options, deadline);
    if (std::string* why = std::get_if<std::string>(&made)) return CannotBuild{std::move(*why)};
    Decisions& decisions = std::get<Decisions>(made);
    decisions.strategy = pass.strategy->name;
    return std::move(decisions);
  };
  std::variant<Problem, Refused> made = transformed_by(std::move(problem), passes, searched);
  if (const Refused* refused = std::get_if<Refused>(&made)) {
    throw InputError(fmt::format("{}: {}", refused->strategy, refused->cannot.why));
  }
  return std::get<Problem>(std::move(made));
}

std::variant<Problem, CannotBuild> transformed(Problem problem, std::span<const Pass> passes,
                                               std::span<const Decisions> known) {
  constexpr std::string_view no_key = "-";
  std::size_t next = 0;
  const auto as_known = [&](const Problem&, std::size_t p) -> std::variant<Decisions, CannotBuild> {
    const std::string_view name = passes[p].strategy->name;
    if (next == known.size()) return CannotBuild{fmt::format("those of '{}' are missing", name), std::string(no_key)};
    const Decisions& decisions = known[next++];
    if (decisions.strategy != name) {
      return CannotBuild{fmt::format("expected '{}', found '{}'", name, decisions.strategy), "strategy"};
    }
    const std::uint32_t found = copies_in(decisions.mesh), asked = copies_asked(passes[p]).value_or(found);
    if (found == asked) return decisions;
    return CannotBuild{fmt::format("expected {} replicas, as '{}' has them, found {}", asked, name, found), "mesh"};
  };
  if (known.size() > deciding(passes)) {
    return CannotBuild{fmt::format("of the strategies {} decide", deciding(passes)),
                       fmt::format("[{}]", deciding(passes))};
  }
  std::variant<Problem, Refused> made = transformed_by(std::move(problem), passes, as_known);
  if (Refused* refused = std::get_if<Refused>(&made)) {
    CannotBuild& cannot = refused->cannot;
    if (!refused->decides) throw InputError(fmt::format("{}: {}", refused->strategy, cannot.why));
    const std::string own = cannot.key.empty() ? "" : "." + cannot.key;
    cannot.key = cannot.key == no_key ? "" : fmt::format("[{}]{}", next - 1, own);
    return std::move(cannot);
  }
  return std::get<Problem>(std::move(made));
}

std::size_t deciding(std::span<const Pass> passes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(passes, [](const Pass& pass) { return pass.strategy->decides(); }));
}

std::vector<PartsOutcome> plan_parts(const Problem& problem, std::span<const Pass> passes,
                                     std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(is_for(problem, passes));
  const std::vector<Pass> memory = memory_passes(passes);
  const Pass* several = partitioning(passes);
  std::vector<PartsOutcome> outcomes;
  if (several != nullptr) {
    outcomes = plan_on_devices(problem, *several, memory, budgets);
  } else {
    outcomes = problem.mesh ? plan_by_simulation(problem, memory, budgets) : on_one_device(problem, memory, budgets);
  }
  for (PartsOutcome& outcome : outcomes) {
    if (PlannedParts* made = std::get_if<PlannedParts>(&outcome)) made->gap = beyond_rounding(made->gap);
  }
  return outcomes;
}

Plan plan_of(const Problem& problem, const PlannedParts& parts, std::optional<Bytes> budget) {
  std::variant<Schedule, std::string> schedule = lower(problem, *parts.partition, parts.tapes);
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  Plan made{
      std::move(std::get<Schedule>(schedule)), parts.peak, parts.makespan, parts.gap, parts.note, parts.candidates};
  made.schedule.budget = budget;
  return made;
}

std::vector<PlanOutcome> plan(const Problem& problem, std::span<const Pass> passes,
                              std::span<const std::optional<Bytes>> budgets) {
  const std::vector<PartsOutcome> parts = plan_parts(problem, passes, budgets);
  std::vector<PlanOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (const Infeasible* none = std::get_if<Infeasible>(&parts[b])) {
      outcomes.emplace_back(*none);
    } else {
      outcomes.emplace_back(plan_of(problem, std::get<PlannedParts>(parts[b]), budgets[b]));
    }
  }
  return outcomes;
}

PlanOutcome plan(const Problem& problem, std::span<const Pass> passes, std::optional<Bytes> budget) {
  return std::move(plan(problem, passes, std::span(&budget, 1)).front());
}

std::vector<Bytes> front_budgets(const Problem& problem, std::span<const Pass> passes) {
  EXPECTS(is_for(problem, passes));
  const std::vector<Pass> memory = memory_passes(passes);
  if (const Pass* several = partitioning(passes)) return front_budgets_on_devices(problem, *several, memory);
  if (problem.mesh) return front_budgets_by_simulation(problem, memory);
  judge(problem, memory);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}};
  std::vector<Bytes> budgets;
  for (const Pass& pass : memory) {
    if (!pass.strategy->names_candidates()) continue;
    const std::vector<Bytes> more = pass.strategy->candidates(task, pass.options);
    budgets.insert(budgets.end(), more.begin(), more.end());
  }
  if (budgets.empty()) {  // one schedule: its peak
    const PlanOutcome whole = plan(problem, passes, std::nullopt);
    if (const Plan* made = std::get_if<Plan>(&whole)) budgets.push_back(made->peak);
  }
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace plimsoll
