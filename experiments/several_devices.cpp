#include "experiments/several_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/model.h"
#include "experiments/run.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

bool is_portfolio_alone(const Question& question) {
  return question.strategy.passes.size() == 1 && question.strategy.passes.front().strategy == &portfolio_strategy;
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

/// What is known of the fastest so far, or of what needs the least.
struct BestOfDevices {
  std::optional<Seconds> makespan;
  std::optional<Bytes> smallest;

  bool is_worse_than(const Answer& answer) const {
    if (answer.feasible()) return !makespan || answer.metrics->makespan < *makespan;
    return !makespan && answer.smallest_feasible && (!smallest || *answer.smallest_feasible < *smallest);
  }
};

}  // namespace

ChosenForDevices chosen_for_devices(Question question) {
  const Trace trace = load_model(question.trace);
  const Platform platform = load_platform(question.platform);
  ChosenForDevices chosen{question, budgeted_problem_of(question, trace, platform), {}};
  if (!is_portfolio_alone(question)) return chosen;
  const Options& options = question.strategy.passes.front().options;
  const bool may_store_8_bits = options.text("eight_bit") == "yes";
  if (platform.devices.size() == 1 && !may_store_8_bits) return chosen;
  std::vector<std::string> specs{question.strategy.text};
  if (platform.devices.size() > 1) {
    std::ranges::move(specs_on_devices(chosen.problem.problem.chain.has_value()), std::back_inserter(specs));
  }
  const std::size_t exact = specs.size();
  for (std::size_t k = 0; may_store_8_bits && k < exact; ++k) specs.push_back("adam8bit|" + specs[k]);
  BestOfDevices best;
  std::optional<std::size_t> taken;
  for (const std::string& spec : specs) {
    Candidate& candidate = chosen.candidates.emplace_back(Candidate{spec, std::nullopt, ""});
    try {
      Question asked = question;
      asked.strategy = parse_pipeline(spec, "portfolio");
      asked.engine = Engine::event;
      asked.transfers = Transfers::link;
      BudgetedProblem problem = budgeted_problem_of(asked, trace, platform);
      const Answer made = std::move(answer(asked, problem.problem, std::span(&problem.budget, 1)).front());
      candidate.reason = made.reason;
      if (made.feasible()) candidate.makespan = made.metrics->makespan;
      if (!best.is_worse_than(made)) continue;
      if (made.feasible()) best.makespan = made.metrics->makespan;
      best.smallest = made.smallest_feasible;
      taken = chosen.candidates.size() - 1;
      asked.engine = question.engine;
      asked.transfers = question.transfers;
      chosen.question = std::move(asked);
      chosen.problem = std::move(problem);
    } catch (const InputError& error) {  // it cannot treat the problem: others can
      candidate.reason = error.what();
    }
  }
  if (taken && best.makespan) chosen.candidates[*taken].taken = true;
  return chosen;
}

}  // namespace plimsoll
