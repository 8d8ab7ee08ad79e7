// plimsoll explain

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/explain/explanation_text.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/summary.h"
#include "experiments/study/understood.h"
#include "experiments/sweep/record_check.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

struct ExplainArguments {
  QuestionArguments question;
  std::string result, point;
  bool json = false, without_better = false, has_engine = false;
};

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

/// A record's word, where it has one: older records lack some.
void take(std::string& word, const Json& record, const char* key) {
  const auto found = record.find(key);
  if (found != record.end() && found->is_string()) word = found->get<std::string>();
}

/// The question that a record of a sweep answers, in the words of the command line.
QuestionArguments words_of(const Json& record) {
  QuestionArguments words;
  take(words.trace, record, "trace");
  take(words.platform, record, "platform");
  take(words.strategy, record, "strategy");
  take(words.engine, record, "engine");
  take(words.allocator, record, "allocator");
  take(words.optimizer, record, "optimizer");
  take(words.states, record, "states");
  take(words.update_kernels, record, "update_kernels");
  take(words.gradients, record, "gradients");
  take(words.transfers, record, "transfers");
  take(words.within, record, "within");
  if (std::string groups; take(groups, record, "parameter_groups"), !groups.empty()) words.parameter_groups = {groups};
  if (const auto ema = record.find("ema"); ema != record.end()) words.ema = *ema == Json(true);
  if (const auto clip = record.find("clip_norm"); clip != record.end()) words.clip_norm = *clip == Json(true);
  if (const auto evaluate = record.find("evaluation"); evaluate != record.end() && evaluate->is_string()) {
    words.evaluate = evaluate->get<std::string>();
  }
  words.micro_batches = std::to_string(record.at("micro_batches").get<std::int64_t>());
  if (const Json& budget = record.at("memory_budget_bytes"); budget.is_number()) {
    words.memory = std::to_string(budget.get<std::int64_t>()) + " B";
  }
  return words;
}

Json record_of(const std::string& folder, const std::string& point) {
  if (point.empty())
    throw InputError(fmt::format("{}: is a folder: expected --point and the number of a point", folder));
  constexpr std::int64_t most = 1'000'000'000;
  const auto number = static_cast<std::size_t>(understood_whole("--point", point, 0, most));
  const SweepContents contents = read_sweep(folder);
  const auto found = contents.records.find(number);
  if (found == contents.records.end()) {
    throw InputError(fmt::format("--point: {} has no result of point {} (results there: {})", folder, number,
                                 contents.records.size()));
  }
  Json record = parse_record(found->second, folder, number);
  if (const std::optional<std::string> wrong = wrong_in_record(record)) {
    throw InputError(fmt::format("{}: point {}: {}", folder, number, *wrong));
  }
  return record;
}

/// A note where the answer is another one than the sweep's: the program or its inputs have changed since.
void note_change(const Json& record, const Answer& answer) {
  const auto then = record.find("makespan_s");
  if (then == record.end() || !then->is_number() || !answer.metrics) return;
  const double now = answer.metrics->makespan.value;
  if (agree(then->get<double>(), now)) return;
  std::cerr << fmt::format(
      "note: the sweep has {} s for this point, and the same question is answered with {} s today\n",
      then->get<double>(), now);
}

AnsweredQuestion answered_point(const ExplainArguments& arguments) {
  if (!arguments.question.trace.empty() || !arguments.question.platform.empty()) {
    throw InputError("--point: is of the trace and platform that the sweep has; leave out --trace and --platform");
  }
  const Json record = record_of(arguments.result, arguments.point);
  QuestionArguments words = words_of(record);
  if (arguments.has_engine) words.engine = arguments.question.engine;
  AnsweredQuestion made = answered(question_of(words, Asks::strategy));
  note_change(record, made.answer);
  return made;
}

/// Nothing, and lines on stderr, where a schedule from a file breaks rules.
std::optional<AnsweredQuestion> asked_to_explain(const ExplainArguments& arguments) {
  if (arguments.result.empty()) return answered(question_of(arguments.question, Asks::strategy));
  if (is_folder(arguments.result)) return answered_point(arguments);
  return answered_file(arguments.result, arguments.question);
}

int run_explain(const ExplainArguments& arguments) {
  const bool is_sweep = is_folder(arguments.result);
  if (!arguments.point.empty() && !is_sweep) throw InputError("--point: is for the folder of a sweep only");
  const std::optional<AnsweredQuestion> of = asked_to_explain(arguments);
  if (!of) return exit_no_result;
  const bool is_file = !arguments.result.empty() && !is_sweep;
  if (is_file) report_beyond(arguments.result, of->answer);
  if (!is_file && !of->answer.feasible()) std::cerr << infeasibility(of->question, of->answer) << '\n';
  if (!of->answer.schedule) return exit_no_result;
  std::optional<PlanningWatch> watch("looking for faster plans");
  const Explanation made = explain(*of, arguments.without_better ? Better::no : Better::looked_for);
  watch.reset();
  std::cout << (arguments.json ? json_text(to_json(made, *of), 2) + "\n" : text_of(made, *of));
  return of->answer.feasible() ? exit_fine : exit_no_result;
}

}  // namespace

void add_explain_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("explain",
                                         "say where an iteration's time goes, which steps make it, what memories hold "
                                         "at their peaks, and what would be faster");
  auto arguments = std::make_shared<ExplainArguments>();
  add_question_options(*command, arguments->question, Asks::strategy);
  add_schedule_option(
      *command, arguments->result,
      "a schedule file, judged first, or the folder of a sweep with --point; without it the question is "
      "planned",
      "result,--schedule");
  command->add_option("--point", arguments->point, "of the folder of a sweep: the number of a point in results.jsonl")
      ->type_name("N");
  command->add_flag(
      "--without-better", arguments->without_better,
      "leave out what more memory would buy: it asks the strategy for its front, as '--memory front' does");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([command, arguments, &exit_code] {
    arguments->has_engine = command->count("--engine") > 0;
    exit_code = run_explain(*arguments);
  });
}

}  // namespace plimsoll
