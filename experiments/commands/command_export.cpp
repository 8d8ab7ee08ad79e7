#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/export/memory_snapshot.h"
#include "experiments/export/schedule_policy.h"
#include "experiments/export/snapshot_of_run.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/summary.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
#include "strategies/offloading/frameworks/decoder_ops.h"
#include "strategies/offloading/frameworks/policy_file.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/order_file.h"

namespace plimsoll {
namespace {

struct ExportArguments {
  std::string format, file;
  QuestionArguments question;
};

/// The order of the strategy's turns.
std::string pipeline_csv(const Question& question) {
  const PlanningWatch watch("planning with " + question.strategy.text);
  const auto [problem, budget, transform_s] = budgeted_problem_of(question);
  if (std::ranges::none_of(question.strategy.passes, [](const Pass& pass) { return pass.strategy->partitions(); })) {
    throw InputError(fmt::format("export: '{}' is not a pipeline", question.strategy.text));
  }
  const std::vector<PartsOutcome> outcomes = plan_parts(problem, question.strategy.passes, std::span(&budget, 1));
  if (const Infeasible* none = std::get_if<Infeasible>(&outcomes[0])) throw InputError("export: " + none->reason);
  const Partition& partition = *std::get<PlannedParts>(outcomes[0]).partition;
  for (std::size_t g = 1; g < partition.parts.size(); ++g) {
    if (partition.parts[g - 1].ops.front() >= partition.parts[g].ops.front()) {
      throw InputError(fmt::format("export: '{}' has a stage on several devices, which the format has no name for",
                                   question.strategy.text));
    }
  }
  const auto ranks = order_of(partition);
  OrderFile file{ranks, problem.micro_batches, partition.exchanges};
  if (!file.exchanges.empty()) file.exchanges.resize(ranks.turns.size());
  return order_csv(file);
}

/// What the allocator does in the strategy's schedule, also where it runs out of memory.
int export_snapshot(const ExportArguments& arguments) {
  if (arguments.file.empty()) throw InputError("export: a memory snapshot is not text; expected -o FILE");
  const Question question = question_of(arguments.question, Asks::strategy);
  std::optional<PlanningWatch> watch("planning with " + question.strategy.text);
  const auto [problem, budget, transform_s] = budgeted_problem_of(question);
  watch->aside([&of = problem] { note_times(of); });
  const Answer made = std::move(answer(question, problem, std::span(&budget, 1)).front());
  watch.reset();
  if (!made.feasible()) std::cerr << "export: " << infeasibility(question, made) << '\n';
  if (!made.schedule) return exit_no_result;
  const MemorySnapshot snapshot = snapshot_of(problem, *made.schedule, *made.timeline, question.allocator);
  write_text_file(arguments.file, pickled(snapshot));
  std::size_t events = 0;
  for (const std::vector<SnapshotEvent>& trace : snapshot.traces) events += trace.size();
  std::cout << fmt::format("{}: {} events, {} segments\n", arguments.file, events, snapshot.segments.size());
  return made.feasible() ? exit_fine : exit_no_result;
}

struct PolicyExport {
  std::string_view name;
  PolicyFormat format;
};
constexpr std::array policy_exports{PolicyExport{"recompute-ops", PolicyFormat::recompute_ops},
                                    PolicyExport{"torchtitan", PolicyFormat::torchtitan},
                                    PolicyExport{"deepcompile", PolicyFormat::deepcompile}};

/// What of a policy a format has no words for; nothing where it has.
std::optional<std::string> beyond(const Graph& graph, const OpPolicy& policy, PolicyFormat format) {
  if (format == PolicyFormat::torchtitan) return std::nullopt;
  const std::vector<bool> of_parameters = parameter_side_ops(graph);
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (format == PolicyFormat::recompute_ops && policy[o] == OpChoice::offload) {
      return fmt::format("moves what '{}' makes to the host", graph.ops[o].name);
    }
    if (format == PolicyFormat::deepcompile && policy[o] == OpChoice::recompute && !of_parameters[o]) {
      return fmt::format("runs '{}' again, which is not made of parameters only", graph.ops[o].name);
    }
  }
  return std::nullopt;
}

/// A line on stderr and nothing where the budget is too small.
std::optional<std::string> policy_export(const Question& question, const PolicyExport& to) {
  if (std::ranges::any_of(question.strategy.passes, [](const Pass& pass) { return changes_problem(*pass.strategy); })) {
    throw InputError(fmt::format("export: '{}' changes the model, whose ops are then others", question.strategy.text));
  }
  std::optional<PlanningWatch> watch("planning with " + question.strategy.text);
  const auto [problem, budget, transform_s] = budgeted_problem_of(question);
  watch->aside([&of = problem] { note_times(of); });
  const Answer made = std::move(answer(question, problem, std::span(&budget, 1)).front());
  watch.reset();
  if (!made.schedule) {
    std::cerr << "export: " << infeasibility(question, made) << '\n';
    return std::nullopt;
  }
  const std::variant<OpPolicy, std::string> policy = policy_of(problem, *made.schedule);
  const auto refuse = [&](std::string_view why) {
    throw InputError(
        fmt::format("export: {} has no words for this plan of '{}': {}", to.name, question.strategy.text, why));
  };
  if (const std::string* why = std::get_if<std::string>(&policy)) refuse(*why);
  const OpPolicy& found = std::get<OpPolicy>(policy);
  if (const std::optional<std::string> why = beyond(problem.graph, found, to.format)) refuse("it " + *why);
  return policy_text(problem.graph, found, to.format);
}

void write_export(const std::string& file, const std::string& text) {
  if (file.empty()) {
    std::cout << text;
  } else {
    write_text_file(file, text);
  }
}

int run_export(const ExportArguments& arguments) {
  constexpr std::array<std::string_view, 5> formats{"pipeline-csv", "memory-snapshot", policy_exports[0].name,
                                                    policy_exports[1].name, policy_exports[2].name};
  if (arguments.format == formats[1]) return export_snapshot(arguments);
  const auto policy = std::ranges::find(policy_exports, arguments.format, &PolicyExport::name);
  if (policy != policy_exports.end()) {
    const std::optional<std::string> text = policy_export(question_of(arguments.question, Asks::strategy), *policy);
    if (!text) return exit_no_result;
    write_export(arguments.file, *text);
    return exit_fine;
  }
  if (arguments.format != formats[0]) {
    throw InputError(fmt::format("export: unknown format '{}', expected {}{}", arguments.format, alternatives(formats),
                                 suggestion(arguments.format, formats)));
  }
  write_export(arguments.file, pipeline_csv(question_of(arguments.question, Asks::strategy)));
  return exit_fine;
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("export", "write files that other programs read");
  auto arguments = std::make_shared<ExportArguments>();
  command
      ->add_option("format", arguments->format,
                   "pipeline-csv: the order of a pipeline's turns as torch.distributed.pipelining writes it,\na line a "
                   "device, which order(file=...) reads; memory-snapshot: what --allocator cuda or\ncuda-expandable "
                   "does in the schedule, as torch.cuda.memory._snapshot() pickles it (for\npytorch.org/memory_viz); "
                   "recompute-ops: the names of ops that run again; torchtitan: what becomes of each\nop of the "
                   "forward, as CheckpointPolicy; deepcompile: the names of ops whose values are moved")
      ->required();
  add_question_options(*command, arguments->question, Asks::strategy);
  command->add_option("-o,--output", arguments->file, "file to write (default: standard output)")->type_name("FILE");
  command->callback([arguments, &exit_code] { exit_code = run_export(*arguments); });
}

}  // namespace plimsoll
