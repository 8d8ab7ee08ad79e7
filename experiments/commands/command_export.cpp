#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/export/memory_snapshot.h"
#include "experiments/export/snapshot_of_run.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/summary.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
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

int run_export(const ExportArguments& arguments) {
  constexpr std::array<std::string_view, 2> formats{"pipeline-csv", "memory-snapshot"};
  if (arguments.format == formats[1]) return export_snapshot(arguments);
  if (arguments.format != formats[0]) {
    throw InputError(fmt::format("export: unknown format '{}', expected {}{}", arguments.format, alternatives(formats),
                                 suggestion(arguments.format, formats)));
  }
  const std::string text = pipeline_csv(question_of(arguments.question, Asks::strategy));
  if (arguments.file.empty()) {
    std::cout << text;
  } else {
    write_text_file(arguments.file, text);
  }
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
                   "does in the schedule, as torch.cuda.memory._snapshot() pickles it (for\npytorch.org/memory_viz)")
      ->required();
  add_question_options(*command, arguments->question, Asks::strategy);
  command->add_option("-o,--output", arguments->file, "file to write (default: standard output)")->type_name("FILE");
  command->callback([arguments, &exit_code] { exit_code = run_export(*arguments); });
}

}  // namespace plimsoll
