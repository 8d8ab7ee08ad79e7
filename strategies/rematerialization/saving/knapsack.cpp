// The strategy `knapsack`: which ops' results are worth their bytes, as PyTorch's activation memory budget asks it; the
// others may be recomputed, and a minimum cut (saved_values.h) says what is saved then.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/saving/knapsack_solver.h"
#include "strategies/rematerialization/saving/min_cut.h"
#include "strategies/rematerialization/saving/saved_values.h"

namespace plimsoll {
namespace {

enum class KnapsackSolver : std::uint8_t { greedy, dp, ilp };

struct KnapsackOptions {
  KnapsackSolver solver = KnapsackSolver::dp;
  std::int64_t steps = 100;
};

/// What saving an op's results takes and spares.
KnapsackItem item_of(const OpModel& model, const ModelOp& op) {
  std::int64_t bytes = 0;
  for (const std::uint32_t v : op.ways.front().makes) {
    const bool read =
        std::ranges::any_of(model.values[v].readers, [&](std::uint32_t reader) { return !model.ops[reader].forward; });
    if (read) bytes += model.storages[model.values[v].storage].count;
  }
  return {bytes, op.ways.front().time.value};
}

struct Plans {
  PlanPool pool;
  std::string stopped = {};  ///< the limit that ended searches, if one did
};

Plans knapsack_plans(const PartTask& task, const KnapsackOptions& options) {
  Plans made{PlanPool(task)};
  made.pool.add(store_all_ops(task));
  const OpModel model = op_model(task);
  const Banned anyway = banned_anyway(model);
  std::vector<std::size_t> free;
  std::vector<KnapsackItem> items;
  std::int64_t sum = 0;
  // Of equals the solvers take the first: the ops nearest to the backward, whose results are needed again the soonest.
  for (std::size_t o = model.ops.size(); o-- > 0;) {
    if (anyway[o]) continue;
    free.push_back(o);
    items.push_back(item_of(model, model.ops[o]));
    sum += items.back().weight;
  }
  const std::int64_t steps = options.steps;
  std::vector<std::int64_t> capacities;
  for (std::int64_t k = 0; k <= steps; ++k) capacities.push_back(sum / steps * k + sum % steps * k / steps);
  const auto solutions = [&]() -> std::vector<Chosen> {
    if (options.solver == KnapsackSolver::greedy) return greedy_knapsack(items, capacities);
    if (options.solver == KnapsackSolver::dp) return rounded_knapsack(items, capacities);
    ExactKnapsack exact = exact_knapsack(items, capacities);
    if (exact.cut_short > 0) {
      made.stopped = fmt::format("{} of {} knapsacks stopped after {} nodes each", exact.cut_short, capacities.size(),
                                 knapsack_nodes);
    }
    return std::move(exact.solutions);
  };
  std::vector<Banned> tried{banned_with_compute(task, model)};  // PyTorch's own choice for a budget of 1
  for (const Chosen& chosen : solutions()) {
    Banned banned = anyway;
    for (std::size_t k = 0; k < free.size(); ++k) banned[free[k]] = chosen[k];
    if (banned != tried.back()) tried.push_back(std::move(banned));
  }
  for (const Banned& banned : tried) {
    const std::optional<OpSequence> sequence =
        recompute_order(model, evicted_by_min_cut(model, banned, CutWeight::bytes));
    if (sequence) made.pool.add(*sequence);
  }
  return made;
}

constexpr auto knapsack_options = options_of<KnapsackOptions>(
    option_of<&KnapsackOptions::solver>({
        .name = "solver",
        .words = "greedy dp ilp",
        .help = "solver of the knapsack: greedy: by time per byte; dp: dynamic programming, optimal for bytes rounded "
                "up to 1/10000 of their sum; ilp: 0/1 program, by branch and bound",
    }),
    option_of<&KnapsackOptions::steps>({
        .name = "steps",
        .least = 1,
        .most = 10'000,
        .help = "number of knapsack capacities to try; the plan is the fastest whose true peak fits the budget",
    }));

std::vector<TapeOutcome> knapsack_tapes(const PartTask& task, const KnapsackOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const Plans made = knapsack_plans(task, options);
  std::vector<TapeOutcome> outcomes =
      or_plain_training(task, budgets, made.pool.outcomes(budgets, "no knapsack leaves less to save"));
  if (made.stopped.empty()) return outcomes;
  for (TapeOutcome& outcome : outcomes) {
    if (auto* tape = std::get_if<PlannedTape>(&outcome)) {
      tape->note = made.stopped;
    } else {
      auto& none = std::get<Infeasible>(outcome);
      none.reason += "; " + made.stopped;
      none.smallest_is_proven = false;
    }
  }
  return outcomes;
}

std::vector<Bytes> knapsack_candidates(const PartTask& task, const KnapsackOptions& options) {
  std::vector<Bytes> budgets = knapsack_plans(task, options).pool.peaks();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo knapsack_strategy{
    .name = "knapsack",
    .family = Family::rematerialization,
    .summary =
        "saves the results that spare the most recomputation for their bytes, by a knapsack and then a minimum cut",
    .source = "PyTorch, torch/_functorch/partitioners.py: activation_memory_budget and its solvers",
    .options = knapsack_options,
    .kind = TapeStrategy{.tapes = by_options<knapsack_tapes>, .candidates = by_options<knapsack_candidates>},
    .effort = {.stages = 100, .ops = 1000},
};

}  // namespace plimsoll
