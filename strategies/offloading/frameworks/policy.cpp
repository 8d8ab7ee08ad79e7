// The strategy `policy`: a choice by ops that others made, by the rule of a framework or in a file. Sources are at the
// rules (framework_rules.cpp).

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <utility>
#include <vector>

#include "sim/io/input_error.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/frameworks/framework_rules.h"
#include "strategies/offloading/frameworks/policy_file.h"
#include "strategies/rematerialization/policies/policies.h"

namespace plimsoll {
namespace {

struct PolicyOptions : OwnMovesOptions {
  std::string rule = "jax.dots_saveable";
  std::string file;
};

std::vector<const FrameworkRule*> rules_like(std::string_view patterns) {
  std::vector<const FrameworkRule*> found;
  for (const FrameworkRule& rule : framework_rules()) {
    if (matches(patterns, rule.name)) found.push_back(&rule);
  }
  return found;
}

bool names_a_rule(std::string_view patterns) {
  return !rules_like(patterns).empty();
}

/// All that a user may take, of which each budget gets the fastest that fits.
class PolicyChoice {
 public:
  PolicyChoice(const PartTask& task, const PolicyOptions& options)
      : task_(task), model_(op_model(task)), moves_(options.offload != OwnMoves::no) {
    if (!options.file.empty()) {
      fixed_.push_back(tapes_of(read_policy_file(options.file, task.problem.graph)));
      return;
    }
    for (const FrameworkRule* rule : rules_like(options.rule)) {
      if (rule->by_budget) {
        by_budget_.push_back(rule);
      } else {
        add(rule->policies({task_, model_, {}}));
      }
    }
  }

  TapeOutcome within(std::optional<Bytes> budget) const {
    TapeOutcome best = Infeasible{why_none_, std::nullopt};
    for (const PolicyTapes& each : fixed_) keep_better(best, each.within(budget));
    for (const FrameworkRule* rule : by_budget_) keep_better(best, asked_for_less(*rule, budget));
    return best;
  }

  std::vector<Bytes> budgets() const {
    std::vector<Bytes> budgets;
    for (const PolicyTapes& each : fixed_) {
      for (const Bytes budget : each.budgets()) budgets.push_back(budget);
    }
    std::ranges::sort(budgets);
    budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
    return budgets;
  }

 private:
  /// What may not move is saved.
  PolicyTapes tapes_of(OpPolicy policy) const {
    if (!moves_) std::ranges::replace(policy, OpChoice::offload, OpChoice::save);
    return {task_, model_, policy};
  }

  /// A rule counts memory as its framework does. Where its plan needs more than the budget, it is asked for so much
  /// less, as its user would do.
  TapeOutcome asked_for_less(const FrameworkRule& rule, std::optional<Bytes> budget) const {
    constexpr int most_questions = 8;
    constexpr std::int64_t least_step = 200;  // of the budget
    TapeOutcome best = Infeasible{std::string(), std::nullopt};
    std::optional<Bytes> asked = budget;
    for (int question = 0; question < most_questions; ++question) {
      RulePolicies made = rule.policies({task_, model_, asked});
      if (std::string* why = std::get_if<std::string>(&made)) {
        Infeasible* none = std::get_if<Infeasible>(&best);
        if (none != nullptr && none->reason.empty()) none->reason = std::move(*why);
        return best;
      }
      Bytes above;
      for (const OpPolicy& policy : std::get<std::vector<OpPolicy>>(made)) {
        TapeOutcome found = tapes_of(policy).within(budget);
        const Infeasible* none = std::get_if<Infeasible>(&found);
        if (none == nullptr || !none->smallest) return found;
        above = *none->smallest - *budget;
        keep_better(best, std::move(found));
      }
      *asked -= std::max(above, Bytes{budget->count / least_step});
      if (*asked <= Bytes{0}) break;
    }
    return best;
  }

  void add(RulePolicies made) {
    if (std::string* why = std::get_if<std::string>(&made)) {
      why_none_ = std::move(*why);
      return;
    }
    for (const OpPolicy& policy : std::get<std::vector<OpPolicy>>(made)) fixed_.push_back(tapes_of(policy));
  }

  const PartTask& task_;
  OpModel model_;
  bool moves_;
  std::deque<PolicyTapes> fixed_;
  std::vector<const FrameworkRule*> by_budget_;
  std::string why_none_;
};

constexpr auto policy_options = options_of<PolicyOptions>(
    option_of<&PolicyOptions::rule>({
        .name = "rule",
        .values = "patterns of rules joined by '+'",
        .help = "whole names of rules or parts of them between dots, with * and ?; of several the fastest within the "
                "budget",
        .allowed = names_a_rule,
    }),
    option_of<&PolicyOptions::file>({
        .name = "file",
        .values = "the path of a policy file",
        .help = "what becomes of the ops that it names, in place of a rule",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }),
    option_of<&OwnMovesOptions::offload>({
        .name = "offload",
        .words = "auto yes no",
        .help = "whether values may go to the host; no: what a policy moves is saved; auto: unless an offloading pass "
                "after this one moves them",
    }));

std::vector<TapeOutcome> policy_tapes(const PartTask& task, const PolicyOptions& options,
                                      std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const PolicyChoice choice(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(choice.within(budget));
  return outcomes;
}

std::vector<Bytes> policy_candidates(const PartTask& task, const PolicyOptions& options) {
  return PolicyChoice(task, options).budgets();
}

}  // namespace

extern constinit const StrategyInfo policy_strategy{
    .name = "policy",
    .family = Family::rematerialization,
    .summary = "keeps, recomputes and offloads by the rule of a framework, or as a file says",
    .source = "Hugging Face, JAX, MaxText, Megatron-LM, torchtitan, DeepSpeed (DeepCompile)",
    .options = policy_options,
    .kind = TapeStrategy{.tapes = by_options<policy_tapes>, .candidates = by_options<policy_candidates>},
};

}  // namespace plimsoll
