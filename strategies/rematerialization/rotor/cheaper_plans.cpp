#include "strategies/rematerialization/rotor/cheaper_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "strategies/common/better_outcome.h"
#include "strategies/rematerialization/rotor/floating_table.h"
#include "strategies/spec.h"

namespace plimsoll {
namespace {

constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();

struct Method {
  std::string_view spec;
  std::size_t longest = any_size;  ///< stages of a chain, ops of a part
};

// Cheapest first: of equals the first is taken.
constexpr Method on_chains[]{
    {"chen_sqrt"},
    {"chen_greedy"},
    {"periodic"},
    {"full_recompute(layers=auto)"},
    {"full_recompute(method=block, layers=auto)"},
    {"selective"},
    {"revolve"},
    {"rotor"},
    {"rotor_floating", longest_floating_chain},
};
constexpr Method on_all[]{
    {"ap_sqrt"},  {"ap_greedy"}, {"ap_greedy(points=all)"}, {"greedy_recompute"}, {"min_cut"}, {"knapsack", 1000},
    {"rockmate"}, {"dtr", 1000},
};

}  // namespace

std::vector<CheaperPlan> cheaper_plans(const PartTask& task, std::span<const std::optional<Bytes>> budgets,
                                       double lp_seconds) {
  std::vector<CheaperPlan> best(budgets.size(), {Infeasible{"no method was asked", std::nullopt}});
  const auto ask = [&](const std::string& spec, std::string_view name) {
    const Pass pass = parse_spec(spec, "a strategy's own plans").front();
    std::vector<TapeOutcome> made = pass.strategy->tapes(task, pass.options, budgets, nullptr);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      if (is_better(made[b], best[b].outcome)) best[b] = {std::move(made[b]), name};
    }
  };
  const auto ask_all = [&](std::span<const Method> methods, std::size_t length) {
    for (const Method& method : methods) {
      if (length <= method.longest) ask(std::string(method.spec), method.spec);
    }
  };
  if (task.problem.chain) ask_all(on_chains, task.problem.chain->stages.size());
  ask_all(on_all, task.partition.parts[task.part.index].ops.size());
  if (lp_seconds >= 1) {
    constexpr double longest = 86'400;
    ask(fmt::format("checkmate_lp(time_limit={})", static_cast<std::int64_t>(std::min(lp_seconds, longest))),
        "checkmate_lp");
  }
  return best;
}

}  // namespace plimsoll
