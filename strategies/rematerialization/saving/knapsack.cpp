#include "strategies/rematerialization/saving/knapsack.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/saving/min_cut.h"

namespace plimsoll {
namespace {

constexpr std::int64_t cells = 10'000;

/// The most value per weight first; weightless ones before all.
std::vector<std::size_t> by_density(const std::vector<KnapsackItem>& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto density = [&items](std::size_t i) {
    return items[i].weight == 0 ? std::numeric_limits<double>::infinity()
                                : items[i].value / static_cast<double>(items[i].weight);
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, density);
  return order;
}

Chosen greedy(const std::vector<KnapsackItem>& items, const std::vector<std::size_t>& order, std::int64_t capacity) {
  Chosen chosen(items.size(), false);
  for (const std::size_t i : order) {
    if (items[i].weight > capacity) continue;
    chosen[i] = true;
    capacity -= items[i].weight;
  }
  return chosen;
}

class BranchAndBound {
 public:
  BranchAndBound(const std::vector<KnapsackItem>& items, const std::vector<std::size_t>& order, std::int64_t most_nodes)
      : items_{items},
        order_{order},
        nodes_left_{most_nodes},
        best_(items.size(), false),
        taken_(items.size(), false) {}

  Chosen solve(std::int64_t capacity) {
    best_ = greedy(items_, order_, capacity);
    for (std::size_t i = 0; i < items_.size(); ++i) best_value_ += best_[i] ? items_[i].value : 0;
    branch(0, capacity, 0);
    return best_;
  }

  bool is_cut_short() const { return cut_short_; }

 private:
  // Value of the relaxation, in which one item may be taken in part.
  double bound(std::size_t from, std::int64_t capacity) const {
    double value = 0;
    for (std::size_t k = from; k < order_.size(); ++k) {
      const KnapsackItem& item = items_[order_[k]];
      if (item.weight > capacity) {
        return value + item.value * static_cast<double>(capacity) / static_cast<double>(item.weight);
      }
      value += item.value;
      capacity -= item.weight;
    }
    return value;
  }

  void branch(std::size_t k, std::int64_t capacity, double value) {
    if (value > best_value_) {
      best_value_ = value;
      best_ = taken_;
    }
    if (k == order_.size() || cut_short_) return;
    cut_short_ = --nodes_left_ < 0;
    if (cut_short_ || value + bound(k, capacity) <= best_value_) return;
    const std::size_t i = order_[k];
    if (items_[i].weight <= capacity) {
      taken_[i] = true;
      branch(k + 1, capacity - items_[i].weight, value + items_[i].value);
      taken_[i] = false;
    }
    branch(k + 1, capacity, value);
  }

  const std::vector<KnapsackItem>& items_;
  const std::vector<std::size_t>& order_;
  std::int64_t nodes_left_;
  Chosen best_, taken_;
  double best_value_ = 0;
  bool cut_short_ = false;
};

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

struct KnapsackPlans {
  PlanPool pool;
  std::string stopped = {};  ///< the limit that ended searches, if one did
};

KnapsackPlans knapsack_plans(const PartTask& task, const KnapsackOptions& options) {
  KnapsackPlans made{PlanPool(task)};
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
  const KnapsackPlans made = knapsack_plans(task, options);
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
  std::vector<Bytes> budgets = knapsack_plans(task, options).pool.budgets();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

std::vector<Chosen> greedy_knapsack(const std::vector<KnapsackItem>& items,
                                    const std::vector<std::int64_t>& capacities) {
  const std::vector<std::size_t> order = by_density(items);
  std::vector<Chosen> solutions;
  solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) solutions.push_back(greedy(items, order, capacity));
  return solutions;
}

std::vector<Chosen> rounded_knapsack(const std::vector<KnapsackItem>& items,
                                     const std::vector<std::int64_t>& capacities) {
  std::int64_t sum = 0;
  for (const KnapsackItem& item : items) sum += item.weight;
  const std::int64_t unit = std::max<std::int64_t>(1, (sum + cells - 1) / cells);
  const std::int64_t most = sum / unit;
  std::vector<double> best(static_cast<std::size_t>(most + 1), 0);
  std::vector<std::vector<bool>> takes(items.size(), std::vector<bool>(best.size(), false));
  const auto weight = [&](std::size_t i) { return (items[i].weight + unit - 1) / unit; };
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (std::int64_t c = most; c >= weight(i); --c) {
      const double with = best[static_cast<std::size_t>(c - weight(i))] + items[i].value;
      if (!(with > best[static_cast<std::size_t>(c)])) continue;
      best[static_cast<std::size_t>(c)] = with;
      takes[i][static_cast<std::size_t>(c)] = true;
    }
  }
  std::vector<Chosen> solutions;
  solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) {
    if (capacity >= sum) {  // rounded up they might not all fit
      solutions.emplace_back(items.size(), true);
      continue;
    }
    Chosen chosen(items.size(), false);
    std::int64_t c = capacity / unit;
    for (std::size_t i = items.size(); i-- > 0;) {
      chosen[i] = takes[i][static_cast<std::size_t>(c)];
      if (chosen[i]) c -= weight(i);
    }
    solutions.push_back(std::move(chosen));
  }
  return solutions;
}

ExactKnapsack exact_knapsack(const std::vector<KnapsackItem>& items, const std::vector<std::int64_t>& capacities,
                             std::int64_t most_nodes) {
  const std::vector<std::size_t> order = by_density(items);
  ExactKnapsack found;
  found.solutions.reserve(capacities.size());
  for (const std::int64_t capacity : capacities) {
    BranchAndBound search(items, order, most_nodes);
    found.solutions.push_back(search.solve(capacity));
    if (search.is_cut_short()) ++found.cut_short;
  }
  return found;
}

// The strategy `knapsack`: which ops' results are worth their bytes, as PyTorch's activation memory budget asks it; the
// others may be recomputed, and a minimum cut (min_cut.h) says what is saved then.
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
