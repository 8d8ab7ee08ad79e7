#include "strategies/rematerialization/knapsack.h"

#include <algorithm>

#include "strategies/common/op_sequence.h"
#include "strategies/rematerialization/knapsack_solver.h"
#include "strategies/rematerialization/min_cut.h"

namespace plimsoll {
namespace {

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

std::vector<Chosen> solutions(std::string_view solver, const std::vector<KnapsackItem>& items,
                              const std::vector<std::int64_t>& capacities) {
  if (solver == "greedy") return greedy_knapsack(items, capacities);
  if (solver == "dp") return rounded_knapsack(items, capacities);
  return exact_knapsack(items, capacities);
}

PlanPool plans(const PartTask& task, const Options& options) {
  PlanPool pool(task);
  pool.add(store_all_ops(task));
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
  const std::int64_t steps = options.integer("steps");
  std::vector<std::int64_t> capacities;
  for (std::int64_t k = 0; k <= steps; ++k) capacities.push_back(sum / steps * k + sum % steps * k / steps);
  std::vector<Banned> tried{banned_with_compute(task, model)};  // PyTorch's own choice for a budget of 1
  for (const Chosen& chosen : solutions(options.text("solver"), items, capacities)) {
    Banned banned = anyway;
    for (std::size_t k = 0; k < free.size(); ++k) banned[free[k]] = chosen[k];
    if (banned != tried.back()) tried.push_back(std::move(banned));
  }
  for (const Banned& banned : tried) {
    const std::optional<OpSequence> sequence =
        recompute_order(model, evicted_by_min_cut(model, banned, CutWeight::bytes));
    if (sequence) pool.add(*sequence);
  }
  return pool;
}

}  // namespace

std::vector<TapeOutcome> knapsack_tapes(const PartTask& task, const Options& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return plans(task, options).outcomes(budgets, "no knapsack leaves less to save");
}

std::vector<Bytes> knapsack_candidates(const PartTask& task, const Options& options) {
  return plans(task, options).peaks();
}

}  // namespace plimsoll
