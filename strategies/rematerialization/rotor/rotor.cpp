// The strategy `rotor`: the optimal memory-persistent checkpointing of a chain (rotor_conditions.h) as a tape.

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "sim/bound/iteration_bound.h"
#include "sim/core/expects.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"
#include "strategies/rematerialization/rotor/rotor_table.h"

namespace plimsoll {
namespace {

struct RotorOptions {
  std::optional<std::int64_t> slots;
};

constexpr Bytes no_limit{std::numeric_limits<std::int64_t>::max() / 4};

/// A solver of one chain.
struct Solver {
  std::function<std::optional<ExactPlan>(Bytes)> solve;
  Bytes least;  ///< feasible budget
};

template <class T>
Solver solver(std::shared_ptr<const T> rotor) {
  return {[rotor](Bytes budget) { return rotor->solve(budget); }, rotor->smallest_feasible()};
}

bool unrounded(const RotorOptions& options) {
  return !options.slots;
}

Solver solver_of(const ChainModel& model, const RotorOptions& options, std::span<const Bytes> budgets) {
  if (unrounded(options)) return solver(std::make_shared<const RotorExact>(model, budgets));
  return solver(std::make_shared<const RotorSlots>(model, *options.slots, budgets));
}

ChainModel model_of(const PartTask& task) {
  return chain_model(task.problem, chain_part(task.problem, task.part()));
}

PlannedTape planned(const PartTask& task, const ChainSequence& sequence, std::optional<double> gap) {
  const Part& part = task.part();
  Tape tape = chain_tape(task.problem, task.partition, task.id, chain_range(task.problem, part), sequence);
  const TapeCost cost = tape_cost(task.problem, part, tape);
  return {std::move(tape), peak_in_flight(cost, task), cost.makespan, gap};
}

/// The least budget: what the solver needs, or the forwards before the first stage that it plans.
Bytes least_budget(const PartTask& task, const Solver& solver) {
  if (chain_range(task.problem, task.part()).forward_only == 0) return solver.least;
  return std::max(solver.least, planned(task, rotor_least_memory(model_of(task)).sequence, std::nullopt).peak);
}

/// The fastest plan found when in_flight - 1 other micro-batches each keep K bytes while one runs, for several K: the
/// running tape then has budget - (in_flight - 1) K, and must keep at most K where it awaits its output gradient,
/// which a workspace of what is left there enforces.
TapeOutcome plan_in_flight(const PartTask& task, const RotorOptions& options, Bytes budget) {
  const ChainPart part = chain_part(task.problem, task.part());
  const ChainModel model = chain_model(task.problem, part);
  const std::int64_t others = task.in_flight - 1;
  const std::size_t await = model.stages() - 1;
  const Bytes room = budget - model.resident;
  constexpr std::int64_t tried = 24;
  std::optional<PlannedTape> fastest;
  for (std::int64_t k = 1; k <= tried && room > Bytes{0}; ++k) {
    const Bytes kept{room.count / (others + 1) / tried * k};
    const Bytes running = budget - others * kept;
    ChainModel capped = model;
    capped.backward_workspace[await] =
        std::max(Bytes{0}, running - model.resident - kept - model.input_gradient[await]);
    const std::optional<ExactPlan> plan = solver_of(capped, options, std::span(&running, 1)).solve(running);
    if (!plan) continue;
    PlannedTape tape = planned(task, plan->sequence, std::nullopt);
    if (tape.peak <= budget) keep_faster(fastest, std::optional(std::move(tape)));
  }
  if (!fastest)
    return Infeasible{"no recomputation of stages fits into the memory that other micro-batches leave", std::nullopt};
  return *std::move(fastest);
}

/// Of a chain that is not solved exactly: by rotor's own bound, or by that of an instant of the iteration, which no
/// schedule beats, whichever is the better.
class LongChainGaps {
 public:
  explicit LongChainGaps(const PartTask& task) : task_(task) {}

  double of(const ExactPlan& plan, Seconds makespan, Bytes budget) {
    const bool is_whole = !not_one_part(task_) && task_.problem.micro_batches == 1;
    if (plan.gap() == 0 || !is_whole) return plan.gap();
    if (!bounds_) bounds_.emplace(task_.problem, task_.part().device, BoundRules{.one_call = false});
    const std::optional<double> gap = relative_gap(makespan, bounds_->within(budget).time);
    return gap ? std::min(plan.gap(), *gap) : plan.gap();
  }

 private:
  const PartTask& task_;
  std::optional<IterationBounds> bounds_;
};

std::vector<TapeOutcome> rotor_outcomes(const PartTask& task, const RotorOptions& options,
                                        std::span<const std::optional<Bytes>> budgets) {
  std::vector<Bytes> limits;
  for (const std::optional<Bytes>& limit : budgets) limits.push_back(limit.value_or(no_limit));
  const ChainModel model = model_of(task);
  // What few budgets of an exact chain ask for is there sooner for each alone.
  const bool alone = !limits.empty() && limits.size() <= 8 && model.stages() <= longest_exact_chain;
  Solver solver = solver_of(model, options, alone ? std::span(limits).first(1) : std::span(limits));
  const Bytes least = least_budget(task, solver);
  LongChainGaps gaps(task);
  std::vector<TapeOutcome> outcomes;
  for (const Bytes& budget : limits) {
    if (alone && &budget != limits.data()) solver = solver_of(model, options, std::span(&budget, 1));
    const std::optional<ExactPlan> plan = budget < least ? std::nullopt : solver.solve(budget);
    if (!plan) {
      outcomes.emplace_back(Infeasible{"no recomputation of stages fits", least});
      continue;
    }
    PlannedTape tape = planned(task, plan->sequence, std::nullopt);
    EXPECTS(tape.peak <= budget);
    tape.gap = gaps.of(*plan, tape.makespan, budget);
    outcomes.emplace_back(std::move(tape));
  }
  return or_plain_training(task, budgets, std::move(outcomes));
}

constexpr auto rotor_options = options_of<RotorOptions>(option_of<&RotorOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 100'000,
    .none = "exact",
    .help = "resolution of memory; exact: sizes are not rounded (chains of more than 250 stages: within a proven gap); "
            "a number: a second plan has its sizes rounded up to 1/slots of the budget, as published, and the faster "
            "of the two plans is taken",
}));

std::vector<TapeOutcome> rotor_tapes(const PartTask& task, const RotorOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const bool others_wait = task.in_flight > 1 || task.weights_waiting > 0;
  if (others_wait && chain_part(task.problem, task.part()).awaits) {
    std::vector<TapeOutcome> outcomes;
    for (const std::optional<Bytes>& limit : budgets) {
      outcomes.push_back(plan_in_flight(task, options, limit.value_or(no_limit)));
    }
    return outcomes;
  }
  std::vector<TapeOutcome> outcomes = rotor_outcomes(task, options, budgets);
  if (!unrounded(options) || task.part().cut_before_backward) return outcomes;  // tapes of graph strategies are not cut
  // Not of rotor's class: a stage's output may be dropped alone, the rest of what it saved being kept.
  return faster_outcomes(std::move(outcomes), greedy_recompute_strategy.tapes(
                                                  task, Options(greedy_recompute_strategy.options), budgets, nullptr));
}

std::vector<Bytes> rotor_candidates(const PartTask& task, const RotorOptions& options) {
  const ChainModel model = model_of(task);
  std::vector<Bytes> budgets;
  if (unrounded(options)) {
    budgets = RotorExact(model).steps();
    const std::vector<Bytes> others =
        greedy_recompute_strategy.candidates(task, Options(greedy_recompute_strategy.options));
    budgets.insert(budgets.end(), others.begin(), others.end());
  } else {
    budgets = RotorSlots(model, *options.slots).steps();
  }
  budgets.push_back(plain_training_peak(task));
  std::ranges::sort(budgets);
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo rotor_strategy{
    .name = "rotor",
    .family = Family::rematerialization,
    .summary = "the fastest memory-persistent recomputation of a chain within the budget, by dynamic programming",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 'Optimal checkpointing for heterogeneous chains', 2019",
    .chains_only = true,
    .options = rotor_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<rotor_tapes>,
            .candidates = by_options<rotor_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 1000},
};

}  // namespace plimsoll
