#include "strategies/rematerialization/programs/checkmate_lp.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/cuts/ap_greedy.h"
#include "strategies/rematerialization/exact/exact_search.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/programs/checkmate_model.h"
#include "strategies/rematerialization/programs/checkmate_rounding.h"
#include "strategies/solve/limited_process.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

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

}  // namespace

std::string add_rounded(PlanPool& pool, const OpModel& model, const RoundingEffort& effort) {
  const Bytes most = pool.peaks().back(), least = least_imaginable(model);
  if (least == most) return {};
  const CheckmateModel program(model, most, Formulation::tight);
  if (!program.is_complete()) {
    return fmt::format("no relaxation: that of {} ops has more than {} nonzeros", model.ops.size(), most_nonzeros);
  }
  std::vector<Limits> levels;
  for (std::int64_t level = effort.levels; level-- > 0;) {
    levels.push_back(program.limits(Bytes{least.count + (most - least).count * level / effort.levels}));
  }
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

namespace {

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
        .help = "number of random roundings at each level, beside the thresholds 0.1 to 0.9",
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
  return checkmate_lp_plans(task, options).pool.peaks();
}

}  // namespace

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

}  // namespace plimsoll
