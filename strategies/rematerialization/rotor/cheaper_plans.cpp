#include "strategies/rematerialization/rotor/cheaper_plans.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "strategies/api/front.h"
#include "strategies/api/pass.h"
#include "strategies/list.h"
#include "strategies/rematerialization/rotor/rotor_floating.h"

namespace plimsoll {
namespace {

constexpr std::size_t any_length = std::numeric_limits<std::size_t>::max();

struct Method {
  std::string_view name;  // as on the command line
  Pass pass;
  std::size_t longest = any_length;  // stages of a chain, ops of a part
};

// Cheapest first: of equals the first is taken.
std::vector<Method> on_chains() {
  return {{"chen_sqrt", pass_of(chen_sqrt_strategy)},
          {"chen_greedy", pass_of(chen_greedy_strategy)},
          {"periodic", pass_of(periodic_strategy)},
          {"full_recompute(layers=auto)", pass_of(full_recompute_strategy, {{"layers", "auto"}})},
          {"full_recompute(method=block, layers=auto)",
           pass_of(full_recompute_strategy, {{"method", "block"}, {"layers", "auto"}})},
          {"selective", pass_of(selective_strategy)},
          {"revolve", pass_of(revolve_strategy)},
          {"rotor", pass_of(rotor_strategy)},
          {"rotor_floating", pass_of(rotor_floating_strategy), longest_floating_chain}};
}

std::vector<Method> on_all() {
  return {{"ap_sqrt", pass_of(ap_sqrt_strategy)},
          {"ap_greedy", pass_of(ap_greedy_strategy)},
          {"ap_greedy(points=all)", pass_of(ap_greedy_strategy, {{"points", "all"}})},
          {"greedy_recompute", pass_of(greedy_recompute_strategy)},
          {"min_cut", pass_of(min_cut_strategy)},
          {"knapsack", pass_of(knapsack_strategy), 1000},
          {"rockmate", pass_of(rockmate_strategy)},
          {"dtr", pass_of(dtr_strategy), 1000}};
}

}  // namespace

std::vector<CheaperPlan> cheaper_plans(const PartTask& task, std::span<const std::optional<Bytes>> budgets,
                                       double lp_seconds) {
  std::vector<CheaperPlan> best(budgets.size(), {Infeasible{"no method was asked", std::nullopt}});
  const auto ask = [&](const Pass& pass, std::string_view name) {
    std::vector<TapeOutcome> made = pass.strategy->tapes(task, pass.options, budgets, nullptr);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      if (keep_better(best[b].outcome, std::move(made[b]))) best[b].made_by = name;
    }
  };
  const auto ask_all = [&](const std::vector<Method>& methods, std::size_t length) {
    for (const Method& method : methods) {
      if (length <= method.longest) ask(method.pass, method.name);
    }
  };
  if (task.problem.chain) ask_all(on_chains(), task.problem.chain->stages.size());
  ask_all(on_all(), task.part().ops.size());
  if (lp_seconds >= 1) {
    constexpr double longest = 86'400;
    const auto seconds = static_cast<std::int64_t>(std::min(lp_seconds, longest));
    ask(pass_of(checkmate_lp_strategy, {{"time_limit", std::to_string(seconds)}}), "checkmate_lp");
  }
  return best;
}

}  // namespace plimsoll
