#include "experiments/sweep/sweep_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "experiments/study/model.h"
#include "experiments/sweep/point_key.h"
#include "platforms/efficiency_file.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/compose/chosen_width.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/compose/transformed.h"
#include "strategies/list.h"
#include "traces/trace_file.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

/// A file's path and text.
std::pair<std::string, std::string> read(const std::filesystem::path& path) {
  return {path.string(), read_text_file(path)};
}

/// What is wrong with a name is told with its place in the experiment; what is wrong in a file, with its place there.
template <class Find>
auto found(const ExperimentFile& file, std::string_view list, std::size_t element, Find find) {
  try {
    return find();
  } catch (const InputError& error) {
    throw InputError(complaint_about(file, list, element, error.what()));
  }
}

/// Calls `read` for every element, and then throws everything that was wrong.
template <class Read>
void read_all(std::size_t elements, std::string& complaints, Read read) {
  for (std::size_t e = 0; e < elements; ++e) {
    try {
      read(e);
    } catch (const InputError& error) {
      complaints += (complaints.empty() ? "" : "\n") + std::string(error.what());
    }
  }
}

/// Ranks change it, and pipelines take graphs as chains of their stages, planners of chains cut them.
bool changes_model(std::span<const Pass> passes) {
  const auto changes = [](const Pass& pass) {
    const bool takes_chains = pass.strategy->chains_only && pass.strategy->family == Family::pipelining;
    return takes_chains || changes_problem(*pass.strategy);
  };
  return std::ranges::any_of(passes, changes) || cuts_graphs_itself(passes);
}

/// What has to be searched for before the problem is known: how ranks share it out, but for what follows rules.
bool searches_for_problem(std::span<const Pass> passes) {
  const auto searches = [](const Pass& pass) {
    const bool follows_rules = pass.strategy == &megatron_strategy || pass.strategy == &context_strategy;
    return pass.strategy == &cluster_strategy || (pass.strategy->decides() && !follows_rules);
  };
  return std::ranges::any_of(passes, searches) || leaves_width_open(passes);
}

/// Whether a pipeline's order and cut follow rules: neither is searched for, nor is a planner asked.
bool is_by_rule(const Pass& pipeline) {
  const std::array<const StrategyInfo*, 3> searches{&zb_auto_strategy, &zb_ilp_strategy, &pipeline_search_strategy};
  if (std::ranges::find(searches, pipeline.strategy) != searches.end()) return false;
  return std::ranges::all_of(pipeline.strategy->options, [&](const OptionInfo& row) {
    const std::string value = row.name == "cut" ? pipeline.options.text(row) : "uniform";
    return value == "uniform" || value == "balanced" || value.starts_with('0');  // 0:4:8
  });
}

/// Throws InputError where the passes refuse the problem that their transforms have made, or how it is to be cut.
void judge_before_plans(const Problem& problem, std::span<const Pass> passes) {
  judge(problem, passes);
  const std::optional<Bytes> unlimited;
  for (const Pass& pass : passes) {
    if (pass.strategy->family != Family::pipelining) continue;
    // Asked about no budget it only says what it refuses for any.
    pass.strategy->partition(problem, pass.options, std::span(&unlimited, is_by_rule(pass) ? 1 : 0));
  }
}

}  // namespace

SweepInputs::SweepInputs(const ExperimentFile& file) {
  std::string complaints;
  read_all(file.experiment.traces.size(), complaints, [&](std::size_t t) { read_trace(file, t); });
  read_all(file.experiment.platforms.size(), complaints, [&](std::size_t p) { read_platform(file, p); });
  if (complaints.empty()) {
    read_all(file.experiment.strategies.size(), complaints, [&](std::size_t s) {
      judge_strategy(file, s);
      read_files_of(file.experiment.strategies[s]);
    });
  }
  if (!complaints.empty()) throw InputError(complaints);
}

template <class Judge>
GroupRefusal SweepInputs::refused(const Question& question, Judge judge_problem) const {
  try {
    const ProblemOutcome made = problem(question);
    if (const std::string* why = std::get_if<std::string>(&made)) return {*why, false};
    judge_problem(std::get<Problem>(made));
  } catch (const InputError& error) {
    return {error.what(), true};
  }
  return {};
}

GroupRefusal SweepInputs::refusal(const Question& question) const {
  if (!traces_.contains(question.trace)) return {};
  const std::span<const Pass> passes = question.strategy.passes;
  if (!searches_for_problem(passes)) {
    return refused(question, [&](const Problem& made) { judge_before_plans(made, passes); });
  }
  Question of_case = question;
  of_case.strategy = {};
  return refused(of_case, [](const Problem&) {});
}

GroupRefusal SweepInputs::refusal_of_model(const Question& question) const {
  if (!traces_.contains(question.trace)) return {};
  const std::span<const Pass> passes = question.strategy.passes;
  Question of_case = question;
  of_case.strategy = {};
  return refused(of_case, [&](const Problem& made) {
    if (!changes_model(passes)) judge(made, passes);
  });
}

/// A strategy is wrong that can treat none of the traces with any of the optimizers.
void SweepInputs::judge_strategy(const ExperimentFile& file, std::size_t element) const {
  const Experiment& e = file.experiment;
  std::string why;
  for (const std::string& trace : e.traces) {
    for (const Optimizer optimizer : e.optimizers) {
      const GroupRefusal refusal = refusal_of_model({.trace = trace,
                                                     .platform = e.platforms.front(),
                                                     .strategy = e.strategies[element],
                                                     .optimizer = optimizer,
                                                     .parameter_groups = e.parameter_groups,
                                                     .states = e.states,
                                                     .update_kernels = e.update_kernels,
                                                     .ema = e.ema,
                                                     .clip_norm = e.clip_norm,
                                                     .evaluation = e.evaluation,
                                                     .gradients = e.gradients});
      if (!refusal.is_error) return;
      why = refusal.why;
    }
  }
  throw InputError(complaint_about(file, "strategies", element, "is for no trace here: " + why));
}

void SweepInputs::read_files_of(const Pipeline& strategy) {
  std::string all;
  for (const Pass& pass : strategy.passes) {
    for (const OptionInfo& row : pass.strategy->options) {
      const std::string path = row.values.starts_with("the path of ") ? pass.options.text(row) : "";
      std::error_code ignored;
      if (std::filesystem::is_regular_file(path, ignored)) all += read_text_file(path) + '\0';
    }
  }
  if (!all.empty()) digests_[strategy.text] = digest_of(all);
}

void SweepInputs::read_trace(const ExperimentFile& file, std::size_t element) {
  const std::string& reference = file.experiment.traces[element];
  if (is_network(reference)) {
    found(file, "traces", element, [&] { return named_network(reference); });
  } else if (is_made_by_rule(reference)) {
    traces_.emplace(reference, found(file, "traces", element, [&] { return load_model(reference); }));
  } else {
    auto [path, text] = found(file, "traces", element, [&] { return read(find_trace(reference)); });
    digests_[reference] = digest_of(text);
    traces_.emplace(reference, parse_trace(std::move(text), path));
  }
}

void SweepInputs::read_platform(const ExperimentFile& file, std::size_t element) {
  const std::string& reference = file.experiment.platforms[element];
  const auto [path, text] = found(file, "platforms", element, [&] { return read(find_platform(reference)); });
  const PlatformOptions options = found(file, "platforms", element, [&] { return platform_options(reference); });
  Platform platform = parse_platform(text, path, options);
  std::string all = text;
  std::shared_ptr<const KernelTimes> last;
  for (const Device& device : platform.devices) {
    const auto* efficiency = dynamic_cast<const Efficiency*>(device.efficiency.get());
    if (efficiency != nullptr && device.efficiency != last) all += written_efficiency(*efficiency, "");
    last = device.efficiency;
  }
  digests_[reference] = digest_of(all);
  platforms_.emplace(reference, std::move(platform));
}

ProblemOutcome SweepInputs::problem(const Question& question) const {
  return problem_of(question, trace(question), platform(question));
}

std::size_t SweepInputs::size_of(const std::string& trace) const {
  const auto found = traces_.find(trace);
  if (found == traces_.end()) return 1;
  const Chain* chain = std::get_if<Chain>(&found->second.model);
  return chain != nullptr ? chain->stages.size() : std::get<Graph>(found->second.model).ops.size();
}

Trace SweepInputs::trace(const Question& question) const {
  const auto trace = traces_.find(question.trace);
  return trace == traces_.end() ? load_model(question.trace) : trace->second;
}

}  // namespace plimsoll
