// Answers of commands that take a question or the file of a schedule.

#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "experiments/commands/commands.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/within.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// Of strategies that choose among questions, not among plans of one.
void refuse_choice_within(const Question& question, const Platform& platform) {
  const std::vector<Pass>& passes = question.strategy.passes;
  const bool chooses = passes.size() == 1 && passes.front().strategy == &portfolio_strategy;
  if (question.within == Within::live || !(asks_cluster(question) || (chooses && platform.devices.size() > 1))) return;
  throw InputError(
      fmt::format("--within {}: '{}' chooses for several devices by live bytes; name one of its candidates",
                  written(question.within), question.strategy.text));
}

AnsweredQuestion planned_for(const Question& question) {
  Trace trace = load_model(question.trace);
  Platform platform = load_platform(question.platform);
  refuse_choice_within(question, platform);
  PlanningWatch watch("planning with " + question.strategy.text);
  if (asks_cluster(question)) {
    AnsweredQuestion chosen = answered_by_cluster(question, trace, platform);
    watch.aside([&] { note_times(chosen.problem); });
    return chosen;
  }
  if (auto chosen = chosen_for_devices(question, trace, platform)) {
    watch.aside([&] { note_times(chosen->problem); });
    return *std::move(chosen);
  }
  auto [problem, budget, transform_s] = budgeted_problem_of(question, std::move(trace), std::move(platform));
  watch.aside([&of = problem] { note_times(of); });
  Answer made = answer_within(question, problem, budget, transform_s);
  return {question, std::move(problem), std::move(made)};
}

}  // namespace

AnsweredQuestion answered(Question question) {
  const Transfers transfers = std::exchange(question.transfers, Transfers::link);  // which plans are promised for
  AnsweredQuestion made = planned_for(question);
  made.question.transfers = transfers;
  if (made.answer.schedule && transfers != Transfers::link) {
    Schedule schedule = std::move(*made.answer.schedule);
    made.answer = answer(made.question, made.problem, std::move(schedule));
  }
  return made;
}

std::optional<AnsweredQuestion> answered_file(const std::string& file, const QuestionArguments& words) {
  Schedule schedule = read_schedule(file);
  Question question = question_of(schedule, file, words.trace, words.platform);
  const Question options = question_of(words, Asks::problem);
  question.engine = options.engine;
  question.allocator = options.allocator;
  question.transfers = options.transfers;
  question.within = options.within;
  Problem problem = problem_of_file(schedule, file, question);
  note_times(problem);
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform);
  report_violations(file, violations);
  if (!violations.empty()) return std::nullopt;
  Answer made = answer(question, problem, std::move(schedule));
  return AnsweredQuestion{std::move(question), std::move(problem), std::move(made)};
}

void report_beyond(const std::string& file, const Answer& made) {
  if (made.feasible()) return;
  const std::string_view what = made.outcome == Outcome::out_of_memory ? "out of memory" : "does not fit";
  std::cerr << fmt::format("{}: {}: {}\n", file, what, made.reason);
}

}  // namespace plimsoll
