// Checkmate: `checkmate`, its integer program, and `checkmate_lp`, its relaxation.

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <ranges>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/api/front.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/cuts/articulation_points.h"
#include "strategies/rematerialization/exact/exact.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/programs/checkmate_model.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "strategies/rematerialization/rotor/cheaper_plans.h"
#include "strategies/solve/limited_process.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

struct RoundingEffort {
  std::int64_t levels = 10, samples = 0, seed = 1, seconds = 60;
};

struct CheckmateLpOptions : LimitOptions {
  std::int64_t levels = 10;
  std::int64_t samples = 10;
  std::int64_t seed = 1;
};

void add_thresholds(PlanPool& pool, const OpModel& model, const std::vector<std::vector<double>>& kept) {
  for (int tenth = 1; tenth <= 9; ++tenth) {
    Kept whole(kept.size(), std::vector<bool>(model.values.size(), false));
    for (std::size_t t = 0; t < kept.size(); ++t) {
      for (std::size_t v = 0; v < kept[t].size(); ++v) whole[t][v] = kept[t][v] >= 0.1 * tenth;
    }
    if (const auto sequence = least_runs(model, std::move(whole))) pool.add(*sequence);
  }
}

void add_random(PlanPool& pool, const OpModel& model, const std::vector<std::vector<double>>& kept,
                std::mt19937_64& generator) {
  Kept whole(kept.size(), std::vector<bool>(model.values.size(), false));
  for (std::size_t t = 0; t < kept.size(); ++t) {
    for (std::size_t v = 0; v < kept[t].size(); ++v) {
      const double unit = static_cast<double>(generator() >> 11U) * 0x1p-53;
      whole[t][v] = unit < kept[t][v];
    }
  }
  if (const auto sequence = least_runs(model, std::move(whole))) pool.add(*sequence);
}

using Limits = std::vector<std::pair<std::size_t, double>>;  // row, upper

/// Solutions of the program with these limits, one after the other, until there is none or a limit ends it.
ProcessResult relaxed(const LinearProgram& program, const std::vector<Limits>& levels, const ProcessLimits& limits) {
  return run_limited(limits, [&](const SendMessage& send) {
    Relaxation relaxation(program, limits.seconds);
    for (const Limits& level : levels) {
      for (const auto& [row, upper] : level) relaxation.set_upper(row, upper);
      const std::optional<std::vector<double>> solution = relaxation.solve();
      if (!solution) return;  // lower levels are no easier
      send(*solution);
    }
  });
}

/// Adds the rounded plans of all levels between the largest working set of an op and the pool's fastest plan. Which
/// limit ended that early, if one did.
std::string add_rounded(PlanPool& pool, const OpModel& model, const RoundingEffort& effort) {
  const Bytes most = pool.budgets().back(), least = least_imaginable(model);
  if (least == most) return {};
  const CheckmateModel program(model, most, Formulation::tight);
  if (!program.is_complete()) {
    return fmt::format("no relaxation: that of {} ops has more than {} nonzeros", model.ops.size(), most_nonzeros);
  }
  std::vector<Limits> levels;
  const std::vector<Bytes> budgets = budgets_between(least, most, static_cast<std::uint32_t>(effort.levels));
  for (auto budget = budgets.rbegin(); budget != budgets.rend(); ++budget) levels.push_back(program.limits(*budget));
  const ProcessLimits limits{.seconds = static_cast<double>(effort.seconds)};
  const ProcessResult result = relaxed(program.program(), levels, limits);
  std::mt19937_64 generator(static_cast<std::uint64_t>(effort.seed));
  for (const std::vector<double>& solution : result.messages) {
    const std::vector<std::vector<double>> kept = program.kept(solution);
    add_thresholds(pool, model, kept);
    for (std::int64_t s = 0; s < effort.samples; ++s) add_random(pool, model, kept, generator);
  }
  const std::string where = fmt::format("at memory level {} of {}", result.messages.size() + 1, effort.levels);
  switch (result.end) {
    case ProcessResult::End::finished:
      return {};
    case ProcessResult::End::out_of_time:
      return fmt::format("the relaxations stopped after {} s (time_limit), {}", effort.seconds, where);
    case ProcessResult::End::died:
      return fmt::format("the relaxations stopped at {} MB of memory, {}", limits.memory.count / 1'000'000, where);
  }
  EXPECTS(false && "every end is named");
  return {};
}

struct RoundedPlans {
  PlanPool pool;
  std::string stopped;  ///< by which limit, if by one
};

RoundedPlans checkmate_lp_plans(const PartTask& task, const CheckmateLpOptions& options) {
  const OpModel model = op_model(task);
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_segments(pool, model, Points::all);
  add_greedy_recompute(pool, model);
  std::string stopped = add_rounded(
      pool, model,
      {.levels = options.levels, .samples = options.samples, .seed = options.seed, .seconds = options.time_limit});
  return {std::move(pool), std::move(stopped)};
}

constexpr auto checkmate_lp_options = options_of<CheckmateLpOptions>(
    option_of<&CheckmateLpOptions::levels>({
        .name = "levels",
        .least = 1,
        .most = 1000,
        .help = "number of memory levels at which the relaxation is solved",
    }),
    option_of<&CheckmateLpOptions::samples>({
        .name = "samples",
        .least = 0,
        .most = 100'000,
        .help = "number of random roundings at each level, in addition to the thresholds 0.1 to 0.9",
    }),
    option_of<&CheckmateLpOptions::seed>({
        .name = "seed",
        .least = 0,
        .most = 1'000'000'000,
        .help = "seed of the random roundings",
    }),
    option_of<&LimitOptions::time_limit>({
        .name = "time_limit",
        .least = 1,
        .most = 86'400,
        .values = "a whole number of seconds from 1 to 86400",
        .help = "stop solving relaxations after this time, counted over all levels; levels that are not reached are "
                "left out",
    }));

std::vector<TapeOutcome> checkmate_lp_tapes(const PartTask& task, const CheckmateLpOptions& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const auto [pool, stopped] = checkmate_lp_plans(task, options);
  std::vector<TapeOutcome> outcomes = pool.outcomes(budgets, "no rounded plan fits");
  if (stopped.empty()) return outcomes;
  for (TapeOutcome& outcome : outcomes) {
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->note = stopped;
    if (Infeasible* refusal = std::get_if<Infeasible>(&outcome)) refusal->reason += "; " + stopped;
  }
  return outcomes;
}

std::vector<Bytes> checkmate_lp_candidates(const PartTask& task, const CheckmateLpOptions& options) {
  return checkmate_lp_plans(task, options).pool.budgets();
}

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
  const auto* known = std::get_if<PlannedTape>(&program);
  const std::string stopped = known != nullptr ? known->note : std::get<Infeasible>(program).reason;
  if (!keep_faster_outcome(program, std::move(cheaper.outcome))) return program;
  if (auto* plan = std::get_if<PlannedTape>(&program)) {
    plan->note = fmt::format("{}; the plan is that of {}", stopped, cheaper.made_by);
  } else {
    program = Infeasible{stopped, std::get<Infeasible>(program).smallest, false};
  }
  return program;
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

// The strategy `checkmate_lp`: Checkmate's relaxation with two-phase rounding (checkmate_solver.h). The relaxation is
// solved at fixed levels of memory, whatever the budget, and all rounded plans form one pool: so less memory is never
// faster, and a plan made for another level may serve a budget better than its own.
extern constinit const StrategyInfo checkmate_lp_strategy{
    .name = "checkmate_lp",
    .family = Family::rematerialization,
    .summary = "Checkmate's linear relaxation at several memory levels, rounded in two phases",
    .source =
        "Jain et al., 'Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization', MLSys 2020, "
        "section 5",
    .options = checkmate_lp_options,
    .kind = TapeStrategy{.tapes = by_options<checkmate_lp_tapes>, .candidates = by_options<checkmate_lp_candidates>},
    .effort = {.stages = 20, .ops = 60, .trials = {.problems = 40, .stride = 7, .stages = 5, .ops = 6}},
};

// The strategy `checkmate`: Checkmate's integer program (checkmate_model.h), solved with CBC.
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
