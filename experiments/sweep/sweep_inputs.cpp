#include "experiments/sweep/sweep_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "experiments/sweep/point_key.h"
#include "platforms/efficiency_file.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/compose/chosen_width.h"
#include "strategies/compose/levels/plan_on_devices.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/compose/transformed.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"
#include "strategies/offloading/activations/offload_options.h"
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

/// Whether what a pass decides is searched for.
bool searches_for_cuts(const Pass& pass) {
  return pass.strategy->decides() && pass.options.get_if<ModelOptions>() != nullptr;
}

bool is_compression(const Pass& pass) {
  return pass.strategy->family == Family::compression;
}

bool is_pipeline(const Pass& pass) {
  return pass.strategy->family == Family::pipelining;
}

/// Whether a pipeline's order and cut follow rules: neither is searched for, nor is a planner asked.
bool is_by_rule(const Pass& pipeline) {
  if (!is_pipeline(pipeline)) return false;
  const std::array<const StrategyInfo*, 3> orders{&zb_auto_strategy, &zb_ilp_strategy, &pipeline_search_strategy};
  if (std::ranges::find(orders, pipeline.strategy) != orders.end()) return false;
  return std::ranges::all_of(pipeline.strategy->options, [&](const OptionInfo& row) {
    const std::string value = row.name == "cut" ? pipeline.options.text(row) : "uniform";
    return value == "uniform" || value == "balanced" || value.starts_with('0');  // 0:4:8
  });
}

/// Whether a memory strategy has reasons of its own to refuse a problem, which it finds before it plans: where it is
/// asked about parts, those that are of no part alone.
bool may_refuse(const Problem& problem, const Pass& pass, bool in_parts) {
  constexpr std::size_t few_ops = 2000;  // DTR logs them all before it refuses
  if (is_compression(pass)) return true;
  if (pass.strategy->moves_parameters()) return pass.strategy != &offmate_strategy;
  if (pass.strategy == &dtr_strategy) return problem.graph.ops.size() <= few_ops;
  if (pass.strategy == &rotor_floating_strategy) return !in_parts;
  const std::array<const StrategyInfo*, 3> others{&portfolio_strategy, &selective_strategy, &policy_strategy};
  return std::ranges::find(others, pass.strategy) != others.end();
}

/// Of a memory strategy on one device, or in parts of a pipeline, whatever the budget.
void judge_memory(const Problem& problem, const Pass& pass, bool in_parts) {
  const Partition whole = one_device(problem.graph, 1, problem.platform.devices.size());
  const PartTask task{problem, whole, PartId{0}};
  if (const OffloadOptions* offloads = pass.options.get_if<OffloadOptions>()) offload_store(task, *offloads);
  if (may_refuse(problem, pass, in_parts)) pass.strategy->tapes(task, pass.options, {}, nullptr);
}

/// The passes that make the problem of these, without a search: what searches how ranks share it out is asked only what
/// it refuses for any cuts, and what follows it and depends on its cuts is left out.
std::vector<Pass> without_searches(std::span<const Pass> passes) {
  std::vector<Pass> made(passes.begin(), passes.end());
  const auto search = std::ranges::find_if(made, searches_for_cuts);
  if (search == made.end()) return made;
  const bool is_open = leaves_width_open(std::span(search, made.end()));
  search->options.change<ModelOptions>().is_judged = true;
  if (is_open) search->options.change<SplitOptions>().devices = "1";  // where no width can be, this one can not
  const auto makes_tapes = [](const Pass& pass) { return pass.strategy->makes_tapes(); };
  if (!std::all_of(search + 1, made.end(), makes_tapes)) made.erase(search + 1, made.end());
  return made;
}

/// Throws InputError where the passes, as without_searches has them, refuse the problem that their transforms have
/// made.
void judge_before_plans(const Problem& problem, std::span<const Pass> passes) {
  const std::vector<Pass> memory = memory_passes(passes);
  const auto partitioning = std::ranges::find_if(
      passes, [](const Pass& pass) { return pass.strategy->partitions() && !pass.strategy->decides(); });
  const bool is_cut_by_ops = problem.chain && partitioning != passes.end() && !is_pipeline(*partitioning);
  const bool packs_first = std::ranges::any_of(memory, is_compression) && !is_cut_by_ops;
  if (partitioning == passes.end() || packs_first) judge(problem, memory);
  if (partitioning != passes.end()) {
    const std::optional<Bytes> unlimited;
    judge_on_devices(problem, *partitioning, memory, std::span(&unlimited, is_by_rule(*partitioning) ? 1 : 0));
  }
  if (memory.empty()) return;
  Problem once = problem;
  once.micro_batches = 1;
  for (const Pass& pass : memory) judge_memory(once, pass, partitioning != passes.end());
}

}  // namespace

Question asked_of_all(const Experiment& e) {
  return {.trace = {},
          .platform = {},
          .strategy = {},
          .parameter_groups = e.parameter_groups,
          .states = e.states,
          .update_kernels = e.update_kernels,
          .ema = e.ema,
          .clip_norm = e.clip_norm,
          .evaluation = e.evaluation,
          .gradients = e.gradients,
          .engine = e.engine,
          .allocator = e.allocator,
          .within = e.within};
}

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
  judged_.reset();
  if (!complaints.empty()) throw InputError(complaints);
}

const ProblemOutcome& SweepInputs::problem_to_judge(const Question& question) const {
  const std::span<const Pass> passes = question.strategy.passes;
  JudgedProblem asked{question, backward_for(passes), inner_for(passes), changes_model(passes), {}};
  asked.question.strategy = {};
  const bool is_the_last = judged_ && !asked.is_changed && !judged_->is_changed &&
                           judged_->backward == asked.backward && judged_->inner == asked.inner &&
                           judged_->question == asked.question;
  if (!is_the_last) {
    judged_.reset();
    asked.made = problem(question);
    judged_ = std::make_unique<JudgedProblem>(std::move(asked));
  }
  return judged_->made;
}

template <class Judge>
GroupRefusal SweepInputs::refused(const Question& question, Judge judge_problem) const {
  try {
    const ProblemOutcome& made = problem_to_judge(question);
    if (const std::string* why = std::get_if<std::string>(&made)) return {*why, false};
    judge_problem(std::get<Problem>(made));
  } catch (const InputError& error) {
    return {error.what(), true};
  }
  return {};
}

GroupRefusal SweepInputs::refusal(const Question& question) const {
  Question asked = question;
  asked.strategy.passes = without_searches(question.strategy.passes);
  const bool is_of_cluster = asks_cluster(question);
  if (is_of_cluster) asked.strategy.passes.clear();
  return refused(asked, [&](const Problem& made) {
    if (!is_of_cluster) return judge_before_plans(made, asked.strategy.passes);
    judge_cluster(question, trace(question), platform(question));
  });
}

void SweepInputs::read_networks() {
  for (const std::string& reference : networks_) {
    try {
      traces_.emplace(reference, load_model(reference));
    } catch (const InputError&) {  // said of each question about it
    }
  }
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
      Question question = asked_of_all(e);
      question.trace = trace;
      question.platform = e.platforms.front();
      question.strategy = e.strategies[element];
      question.optimizer = optimizer;
      const GroupRefusal refusal = refusal_of_model(question);
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
    networks_.push_back(reference);
  } else if (is_made_by_rule(reference)) {
    traces_.emplace(reference, found(file, "traces", element, [&] { return load_model(reference); }));
  } else {
    auto [path, text] = found(file, "traces", element, [&] { return read(find_trace(reference, network_names())); });
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
