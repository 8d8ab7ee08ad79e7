#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/export/chakra_files.h"
#include "experiments/export/dot_file.h"
#include "experiments/export/memory_snapshot.h"
#include "experiments/export/perfetto.h"
#include "experiments/export/schedule_policy.h"
#include "experiments/export/snapshot_of_run.h"
#include "experiments/export/steps_csv.h"
#include "experiments/study/build_name.h"
#include "experiments/study/model.h"
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
  std::string format, file, schedule;
  QuestionArguments question;
};

/// What is written of a schedule, planned or from a file; nothing, and lines on stderr, where there is none.
std::optional<AnsweredQuestion> asked(const ExportArguments& arguments) {
  std::optional<AnsweredQuestion> made = arguments.schedule.empty()
                                             ? answered(question_of(arguments.question, Asks::strategy))
                                             : answered_file(arguments.schedule, arguments.question);
  if (!made) return made;
  if (!arguments.schedule.empty()) {
    report_beyond(arguments.schedule, made->answer);
  } else if (!made->answer.feasible()) {
    std::cerr << "export: " << infeasibility(made->question, made->answer) << '\n';
  }
  if (!made->answer.schedule) made.reset();
  return made;
}

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

/// What the allocator does in the schedule, also where it runs out of memory.
int export_snapshot(const ExportArguments& arguments) {
  if (arguments.file.empty()) throw InputError("export: a memory snapshot is not text; expected -o FILE");
  const std::optional<AnsweredQuestion> made = asked(arguments);
  if (!made) return exit_no_result;
  const MemorySnapshot snapshot =
      snapshot_of(made->problem, *made->answer.schedule, *made->answer.timeline, made->question.allocator);
  write_text_file(arguments.file, pickled(snapshot));
  std::size_t events = 0;
  for (const std::vector<SnapshotEvent>& trace : snapshot.traces) events += trace.size();
  std::cout << fmt::format("{}: {} events, {} segments\n", arguments.file, events, snapshot.segments.size());
  return made->answer.feasible() ? exit_fine : exit_no_result;
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

void refuse_changed_model(const Pipeline& strategy) {
  if (std::ranges::none_of(strategy.passes, [](const Pass& pass) { return changes_problem(*pass.strategy); })) return;
  throw InputError(fmt::format("export: '{}' changes the model, whose ops are then others", strategy.text));
}

std::string policy_export(const AnsweredQuestion& made, const PolicyExport& to) {
  const auto& [question, problem, answer] = made;
  const std::variant<OpPolicy, std::string> policy = policy_of(problem, *answer.schedule);
  const auto refuse = [&, &of = question](std::string_view why) {
    throw InputError(fmt::format("export: {} has no words for this plan of '{}': {}", to.name, of.strategy.text, why));
  };
  if (const std::string* why = std::get_if<std::string>(&policy)) refuse(*why);
  const OpPolicy& found = std::get<OpPolicy>(policy);
  if (const std::optional<std::string> why = beyond(problem.graph, found, to.format)) refuse("it " + *why);
  return policy_text(problem.graph, found, to.format);
}

/// The trace as it is; where the strategy changes the model, the graph that it makes of it.
std::string trace_export(const AnsweredQuestion& made) {
  const std::vector<Pass>& passes = made.question.strategy.passes;
  if (std::ranges::none_of(passes, [](const Pass& pass) { return changes_problem(*pass.strategy); })) {
    return trace_text(load_model(made.question.trace));
  }
  std::string text = trace_text({made.problem.graph});
  const Trace again = parse_trace(text, "export");
  if (std::get<Graph>(again.model) == made.problem.graph) return text;
  throw InputError(fmt::format("export: what '{}' makes of '{}' has costs that trace files have no keys for",
                               made.question.strategy.text, made.question.trace));
}

void write_export(const std::string& file, const std::string& text) {
  if (file.empty()) {
    std::cout << text;
  } else {
    write_text_file(file, text);
  }
}

int export_chakra(const ExportArguments& arguments, const AnsweredQuestion& made, std::string_view by) {
  for (const ChakraFile& file : chakra_files(made.problem, *made.answer.schedule, *made.answer.timeline, by)) {
    write_text_file(arguments.file + file.suffix, file.content);
    std::cout << arguments.file << file.suffix << '\n';
  }
  return made.answer.feasible() ? exit_fine : exit_no_result;
}

/// As text, of a format that has one file.
std::string exported(const AnsweredQuestion& made, std::string_view format, std::string_view by) {
  const auto& [question, problem, answer] = made;
  if (format == "perfetto") return perfetto_timeline(problem, *answer.schedule, *answer.timeline, by);
  if (format == "csv") return steps_csv(problem, *answer.schedule, *answer.timeline, by);
  if (format == "dot") return dot_text(problem, by);
  if (format == "trace") return trace_export(made);
  return policy_export(made, *std::ranges::find(policy_exports, format, &PolicyExport::name));
}

/// A plan's choice of ops is refused where no plan can have one, before there is a plan.
int run_export(const ExportArguments& arguments, const std::string& command_line) {
  constexpr std::array<std::string_view, 10> formats{"perfetto",
                                                     "chakra",
                                                     "csv",
                                                     "dot",
                                                     "trace",
                                                     "memory-snapshot",
                                                     "pipeline-csv",
                                                     policy_exports[0].name,
                                                     policy_exports[1].name,
                                                     policy_exports[2].name};
  const std::string& format = arguments.format;
  if (std::ranges::find(formats, format) == formats.end()) {
    throw InputError(fmt::format("export: unknown format '{}', expected {}{}", format, alternatives(formats),
                                 suggestion(format, formats)));
  }
  if (format == "memory-snapshot") return export_snapshot(arguments);
  if (format == "pipeline-csv") {
    if (!arguments.schedule.empty()) {
      throw InputError("--schedule: pipeline-csv is of a strategy's turns, expected --strategy");
    }
    write_export(arguments.file, pipeline_csv(question_of(arguments.question, Asks::strategy)));
    return exit_fine;
  }
  if (format == "chakra" && arguments.file.empty()) {
    throw InputError("export: chakra is a file for each rank; expected -o and the begin of their names");
  }
  const bool is_policy = std::ranges::find(policy_exports, format, &PolicyExport::name) != policy_exports.end();
  if (is_policy && arguments.schedule.empty()) {
    refuse_changed_model(question_of(arguments.question, Asks::strategy).strategy);
  }
  const std::optional<AnsweredQuestion> made = asked(arguments);
  if (!made) return exit_no_result;
  if (is_policy) refuse_changed_model(made->question.strategy);
  const std::string by = made_by(command_line);
  if (format == "chakra") return export_chakra(arguments, *made, by);
  write_export(arguments.file, exported(*made, format, by));
  return made->answer.feasible() ? exit_fine : exit_no_result;
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand("export", "write files that other programs read");
  auto arguments = std::make_shared<ExportArguments>();
  command
      ->add_option(
          "format", arguments->format,
          "perfetto: the timeline for ui.perfetto.dev, as --timeline writes it; chakra: an execution trace for\neach "
          "rank; csv: a row a step; dot: the graph for Graphviz and 'import dot'; trace: the model as a\ntrace "
          "file; memory-snapshot: what --allocator cuda or cuda-expandable does in the schedule, as\n"
          "torch.cuda.memory._snapshot() pickles it (for pytorch.org/memory_viz); pipeline-csv: the order of\na "
          "pipeline's turns as torch.distributed.pipelining writes it, a line a device, which\norder(file=...) "
          "reads; recompute-ops: the names of ops that run again; torchtitan: what becomes of each\nop of the "
          "forward, as CheckpointPolicy; deepcompile: the names of ops whose values are moved")
      ->required();
  add_question_options(*command, arguments->question, Asks::strategy);
  add_schedule_option(*command, arguments->schedule, "write of the schedule of this file instead of planning one");
  command
      ->add_option("-o,--output", arguments->file,
                   "file to write (default: standard output); of chakra what comes before .0.et, .1.et, ...")
      ->type_name("FILE");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_export(*arguments, command_line); });
}

}  // namespace plimsoll
