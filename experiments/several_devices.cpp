#include "experiments/several_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/io/input_error.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

constexpr std::string_view eight_bit_option = "eight_bit";

/// As on the command line, without the choice of states.
std::string one_device_spec(const Options& options) {
  std::string given;
  for (const OptionInfo& each : portfolio_strategy.options) {
    if (each.name == eight_bit_option || options.text(each.name) == each.default_value) continue;
    given += fmt::format("{}{}={}", given.empty() ? "(" : ",", each.name, options.text(each.name));
  }
  return std::string(portfolio_strategy.name) + (given.empty() ? "" : given + ")");
}

/// Strategies that find a plan quickly, alone and with recomputation.
std::vector<std::string> specs_on_devices(bool is_chain) {
  const std::vector<std::string> chains{"1f1b", "eager_1f1b", "gpipe",         "interleaved", "zb_h1", "zb_auto",
                                        "zb_v", "v_half",     "data_parallel", "zero1",       "zero2", "zero3"};
  const std::vector<std::string> graphs{"auto", "data_parallel", "zero1", "zero2", "zero3", "megatron"};
  std::vector<std::string> specs;
  for (const std::string& spec : is_chain ? chains : graphs) {
    specs.push_back(spec);
    specs.push_back(spec + (is_chain ? "|rotor" : "|greedy_recompute"));
  }
  return specs;
}

bool is_better(const Answer& a, const Answer& b) {
  if (a.feasible() && b.feasible()) return a.metrics->makespan < b.metrics->makespan;
  if (a.feasible() || b.feasible()) return a.feasible();
  return a.smallest_feasible && (!b.smallest_feasible || *a.smallest_feasible < *b.smallest_feasible);
}

class DevicesChoice {
 public:
  DevicesChoice(const Question& question, const Trace& trace, const Platform& platform)
      : question_(question), trace_(trace), platform_(platform) {}

  void ask(const std::string& spec) {
    Question asked = question_;
    asked.strategy = parse_pipeline(spec, "portfolio");
    try {
      BudgetedProblem made = budgeted_problem_of(asked, trace_, platform_);
      Answer answer =
          std::move(plimsoll::answer(asked, made.problem, std::span(&made.budget, 1), made.transform_s).front());
      solve_s_ += answer.solve_s;
      take(spec, {std::move(asked), std::move(made.problem), std::move(answer)});
    } catch (const InputError& error) {  // it cannot treat the problem: others can
      candidates_.push_back({spec, std::nullopt, error.what()});
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
  void take(const std::string& spec, AnsweredQuestion made) {
    const bool is_best = !best_ || is_better(made.answer, best_->answer);
    if (is_best) {
      for (Candidate& each : candidates_) each.taken = false;
    }
    std::vector<Candidate> own = std::move(made.answer.candidates);
    if (own.empty()) {
      const Answer& answer = made.answer;
      own.push_back({spec, std::nullopt, answer.reason, answer.feasible()});
      if (answer.feasible()) own.back().makespan = answer.metrics->makespan;
      if (answer.smallest_feasible) own.back().reason = fmt::format("needs {} B", answer.smallest_feasible->count);
    } else if (spec.starts_with(adam8bit_strategy.name)) {
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
  const Options& options = passes.front().options;
  if (options.text("target") == "pytorch") return std::nullopt;  // one device, whose optimizer has its states
  const bool may_store_8_bits = options.text(eight_bit_option) == "yes";
  if (platform.devices.size() == 1 && !may_store_8_bits) return std::nullopt;
  std::vector<std::string> specs{one_device_spec(options)};
  if (platform.devices.size() > 1) {
    std::ranges::move(specs_on_devices(std::holds_alternative<Chain>(trace.model)), std::back_inserter(specs));
  }
  DevicesChoice choice(question, trace, platform);
  for (const std::string& spec : specs) choice.ask(spec);
  for (const std::string& spec : specs) {
    if (may_store_8_bits) choice.ask(fmt::format("{}|{}", adam8bit_strategy.name, spec));
  }
  return std::move(choice).chosen();
}

}  // namespace plimsoll
