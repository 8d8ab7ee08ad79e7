#include "experiments/study/choice/several_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/within.h"
#include "sim/io/input_error.h"
#include "strategies/api/front.h"
#include "strategies/list.h"
#include "strategies/portfolio/portfolio_options.h"

namespace plimsoll {
namespace {

constexpr std::int64_t points_at_effort = 100;  // that `cluster` simulates at most

/// On one device, without the choice of states.
Pipeline on_one_device(const Pass& portfolio) {
  Options options = portfolio.options;
  options.change<PortfolioOptions>().eight_bit = false;
  std::string given;
  for (const OptionInfo& each : portfolio.strategy->options) {
    const std::string value = options.text(each);
    if (value == portfolio.strategy->options.default_text(each)) continue;
    given += fmt::format("{}{}={}", given.empty() ? "(" : ",", each.name, value);
  }
  return {std::string(portfolio.strategy->name) + (given.empty() ? "" : given + ")"), {{portfolio.strategy, options}}};
}

Pipeline before(const StrategyInfo& first, Pipeline rest) {
  rest.text = fmt::format("{}|{}", first.name, rest.text);
  rest.passes.insert(rest.passes.begin(), pass_of(first));
  return rest;
}

/// Strategies that find a plan quickly, alone and with recomputation.
std::vector<Pipeline> on_all_devices(bool is_chain) {
  const std::vector<const StrategyInfo*> chains{&one_forward_one_backward_strategy,
                                                &eager_1f1b_strategy,
                                                &gpipe_strategy,
                                                &interleaved_strategy,
                                                &zb_h1_strategy,
                                                &zb_auto_strategy,
                                                &zb_v_strategy,
                                                &v_half_strategy,
                                                &data_parallel_strategy,
                                                &zero1_strategy,
                                                &zero2_strategy,
                                                &zero3_strategy};
  const std::vector<const StrategyInfo*> graphs{&auto_strategy,  &data_parallel_strategy, &zero1_strategy,
                                                &zero2_strategy, &zero3_strategy,         &megatron_strategy};
  const StrategyInfo& recompute = is_chain ? rotor_strategy : greedy_recompute_strategy;
  std::vector<Pipeline> pipelines;
  for (const StrategyInfo* strategy : is_chain ? chains : graphs) {
    pipelines.push_back({std::string(strategy->name), {pass_of(*strategy)}});
    pipelines.push_back(before(*strategy, {std::string(recompute.name), {pass_of(recompute)}}));
  }
  return pipelines;
}

struct AnswerTime {
  Seconds makespan;
};

/// What decides between two answers.
std::variant<AnswerTime, Infeasible> merit_of(const Answer& answer) {
  if (answer.feasible()) return AnswerTime{answer.metrics->makespan};
  return Infeasible{answer.reason, answer.smallest_feasible};
}

class DevicesChoice {
 public:
  DevicesChoice(const Question& question, const Trace& trace, const Platform& platform)
      : question_(question), trace_(trace), platform_(platform) {}

  void ask(const Pipeline& pipeline) {
    Question asked = question_;
    asked.strategy = pipeline;
    try {
      BudgetedProblem made = budgeted_problem_of(asked, trace_, platform_);
      Answer answer = answer_within(asked, made.problem, made.budget, made.transform_s);
      solve_s_ += answer.solve_s;
      take({std::move(asked), std::move(made.problem), std::move(answer)});
    } catch (const InputError& error) {  // it cannot treat the problem: others can
      candidates_.push_back({pipeline.text, std::nullopt, error.what()});
    }
  }

  /// The best combination of all that it simulates.
  void ask_cluster(std::int64_t points) {
    const std::string limit = std::to_string(points);
    Question asked = question_;
    asked.strategy = {fmt::format("{}(points={})", cluster_strategy.name, limit),
                      {pass_of(cluster_strategy, {{"points", limit}})}};
    try {
      AnsweredQuestion made = answered_by_cluster(asked, trace_, platform_);
      solve_s_ += made.answer.solve_s;
      take(std::move(made));
    } catch (const InputError& error) {  // its memories are not alike, or no combination is possible
      candidates_.push_back({asked.strategy.text, std::nullopt, error.what()});
    }
  }

  std::optional<AnsweredQuestion> chosen() && {
    if (!best_) return std::nullopt;
    best_->answer.candidates = std::move(candidates_);
    best_->answer.solve_s = solve_s_;
    return std::move(best_);
  }

 private:
  /// Of a strategy that itself chooses, all among which it does.
  void take(AnsweredQuestion made) {
    const bool is_best = !best_ || is_better(merit_of(made.answer), merit_of(best_->answer));
    if (is_best) {
      for (Candidate& each : candidates_) each.taken = false;
    }
    std::vector<Candidate> own = std::move(made.answer.candidates);
    if (own.empty()) {
      const Answer& answer = made.answer;
      own.push_back({made.question.strategy.text, std::nullopt, answer.reason, answer.feasible()});
      if (answer.feasible()) own.back().makespan = answer.metrics->makespan;
      if (answer.smallest_feasible) own.back().reason = fmt::format("needs {} B", answer.smallest_feasible->count);
    } else if (made.question.strategy.passes.front().strategy == &adam8bit_strategy) {
      for (Candidate& each : own) each.strategy = fmt::format("{}|{}", adam8bit_strategy.name, each.strategy);
    }
    for (Candidate& each : own) {
      each.taken = each.taken && is_best;
      candidates_.push_back(std::move(each));
    }
    if (is_best) best_.emplace(std::move(made));
  }

  const Question& question_;
  const Trace& trace_;
  const Platform& platform_;
  std::vector<Candidate> candidates_;
  std::optional<AnsweredQuestion> best_;
  double solve_s_ = 0;
};

}  // namespace

std::optional<AnsweredQuestion> chosen_for_devices(const Question& question, const Trace& trace,
                                                   const Platform& platform) {
  const std::vector<Pass>& passes = question.strategy.passes;
  if (passes.size() != 1 || passes.front().strategy != &portfolio_strategy) return std::nullopt;
  const PortfolioOptions& options = passes.front().options.as<PortfolioOptions>();
  if (options.for_pytorch) return std::nullopt;  // one device, whose optimizer has its states
  const bool may_store_8_bits = options.eight_bit;
  if (platform.devices.size() == 1 && !may_store_8_bits) return std::nullopt;
  std::vector<Pipeline> pipelines{on_one_device(passes.front())};
  if (platform.devices.size() > 1) {
    std::ranges::move(on_all_devices(std::holds_alternative<Chain>(trace.model)), std::back_inserter(pipelines));
  }
  DevicesChoice choice(question, trace, platform);
  for (const Pipeline& pipeline : pipelines) choice.ask(pipeline);
  if (platform.devices.size() > 1 && options.effort > 0 && std::holds_alternative<Graph>(trace.model)) {
    choice.ask_cluster(points_at_effort * options.effort);
  }
  for (const Pipeline& pipeline : pipelines) {
    if (may_store_8_bits) choice.ask(before(adam8bit_strategy, pipeline));
  }
  return std::move(choice).chosen();
}

}  // namespace plimsoll
