// The strategy `checkmate`: Checkmate's integer program (checkmate_model.h), solved with CBC.

#include <algorithm>
#include <string>
#include <utility>

#include "strategies/api/better_outcome.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/cuts/ap_greedy.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "strategies/rematerialization/rotor/cheaper_plans.h"

namespace plimsoll {
namespace {

struct CheckmateOptions : LimitOptions {
  Formulation formulation = Formulation::tight;
};

CheckmateSolver checkmate_solver(const PartTask& task, const CheckmateOptions& options) {
  OpModel model = op_model(task);
  PlanPool known(task);
  known.add(store_all_ops(task));
  add_greedy_segments(known, model, Points::all);
  add_greedy_recompute(known, model);
  const CheckmateEffort effort{.formulation = options.formulation,
                               .limits = {.seconds = static_cast<double>(options.time_limit), .nodes = options.nodes}};
  return {task, std::move(model), effort, std::move(known)};
}

/// Whether a limit ended what was done for the answer.
bool is_cut_short(const TapeOutcome& outcome) {
  if (const auto* tape = std::get_if<PlannedTape>(&outcome)) return !tape->note.empty();
  return !std::get<Infeasible>(outcome).smallest_is_proven;
}

/// The better of what the program had when a limit ended it and of a cheaper method's answer.
TapeOutcome better_of(TapeOutcome program, CheaperPlan cheaper) {
  if (!is_better(cheaper.outcome, program)) return program;
  if (auto* none = std::get_if<Infeasible>(&cheaper.outcome)) {
    none->reason = std::get<Infeasible>(program).reason;
    none->smallest_is_proven = false;
    return cheaper.outcome;
  }
  auto& plan = std::get<PlannedTape>(cheaper.outcome);
  plan.gap.reset();
  plan.note = "the plan is that of " + std::string(cheaper.made_by);
  if (const auto* known = std::get_if<PlannedTape>(&program)) {
    plan.note = known->note + "; " + plan.note;
    if (known->gap) plan.gap = std::max(0.0, 1 - known->makespan.value * (1 - *known->gap) / plan.makespan.value);
  } else {
    plan.note = std::get<Infeasible>(program).reason + "; " + plan.note;
  }
  return cheaper.outcome;
}

/// Answers that were cut short are no worse than those of the cheaper methods but the relaxation; larger parts are to
/// be answered at once.
std::vector<TapeOutcome> with_cheaper(const PartTask& task, std::span<const std::optional<Bytes>> budgets,
                                      std::vector<TapeOutcome> outcomes) {
  constexpr std::size_t most_ops = 1000;
  if (task.part().ops.size() > most_ops) return outcomes;
  std::vector<std::optional<Bytes>> cut;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (is_cut_short(outcomes[b])) cut.push_back(budgets[b]);
  }
  if (cut.empty()) return outcomes;
  std::vector<CheaperPlan> cheaper = cheaper_plans(task, cut, 0);
  std::size_t next = 0;
  for (TapeOutcome& outcome : outcomes) {
    if (is_cut_short(outcome)) outcome = better_of(std::move(outcome), std::move(cheaper[next++]));
  }
  return outcomes;
}

constexpr auto checkmate_options = options_of<CheckmateOptions>(
    option_of<&CheckmateOptions::formulation>({
        .name = "formulation",
        .words = "tight kappa",
        .help = "how the program says when a value is freed: tight: by one inequality for each hazard; kappa: as in "
                "the paper",
    }),
    time_limit_option, nodes_option);

std::vector<TapeOutcome> checkmate_tapes(const PartTask& task, const CheckmateOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  CheckmateSolver checkmate = checkmate_solver(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(checkmate.solve(budget));
  return with_cheaper(task, budgets, std::move(outcomes));
}

std::vector<Bytes> checkmate_candidates(const PartTask& task, const CheckmateOptions& options) {
  return checkmate_solver(task, options).candidates();
}

}  // namespace

extern constinit const StrategyInfo checkmate_strategy{
    .name = "checkmate",
    .family = Family::rematerialization,
    .summary = "the fastest recomputation of a graph whose first runs keep their order, by integer programming",
    .source = "Jain et al., 'Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization', MLSys 2020",
    .options = checkmate_options,
    .kind = TapeStrategy{.tapes = by_options<checkmate_tapes>, .candidates = by_options<checkmate_candidates>},
    .effort = {.stages = 4, .ops = 12, .trials = {.problems = 30, .stride = 7, .stages = 3, .ops = 4}},
};

}  // namespace plimsoll
