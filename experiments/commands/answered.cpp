// Answers of commands that take a question or the file of a schedule.

#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <utility>

#include "experiments/commands/commands.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/within.h"
#include "experiments/sweep/worker_pool.h"
#include "platforms/platform_file.h"
#include "sim/engine/engine_error.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
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

/// Tells a watch how far a search is, and ends it after its time or when it is interrupted.
class SearchControl {
 public:
  SearchControl(PlanningWatch& watch, std::unique_ptr<Interruption> interruption, std::optional<Seconds> timeout)
      : watch_(watch), interruption_(std::move(interruption)), timeout_(timeout) {}

  bool goes_on(const ClusterProgress& now) {
    if (now.bounded < now.points) {
      searching_ = Clock::now();
    } else {
      ++tried_;
    }
    const double elapsed = seconds_since(started_);
    if (timeout_ && elapsed >= timeout_->value) is_over_ = true;
    if (elapsed < next_) return !is_over_;
    next_ = elapsed + 0.1;
    watch_.set_progress(how_far(now));
    if (interruption_ && interruption_->asked()) {
      interruption_.reset();  // who asks again ends the program
      if (!now.best) throw SimulationInterrupted("cluster: interrupted before there was a plan");
      is_over_ = true;
    }
    return !is_over_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }

  std::string how_far(const ClusterProgress& now) const {
    if (tried_ == 0) return fmt::format("{} of {} points bounded", now.bounded, now.points);
    std::string text = fmt::format("{} of {} points simulated", now.simulated, now.points);
    if (now.best && now.bound > Seconds{}) {
      text += fmt::format(", best {}, at most {:.1f} % more than can be", format_seconds(*now.best),
                          100 * (*now.best / now.bound - 1));
    }
    const std::size_t left = now.left();
    const double each = seconds_since(searching_) / static_cast<double>(tried_);
    return text + fmt::format(", {} left: about {:.0f} s", left, each * static_cast<double>(left));
  }

  PlanningWatch& watch_;
  std::unique_ptr<Interruption> interruption_;
  std::optional<Seconds> timeout_;
  Clock::time_point started_ = Clock::now(), searching_ = started_;
  std::size_t tried_ = 0;  // points since all are bounded
  double next_ = 0;        // when the watch is told next
  bool is_over_ = false;
};

/// Interrupted, or after its time, it ends with the best so far.
AnsweredQuestion planned_for_cluster(const Question& question, const Trace& trace, const Platform& platform,
                                     std::optional<Seconds> timeout) {
  auto interruption = std::make_unique<Interruption>();  // before the thread of the watch, which has its mask
  PlanningWatch watch("planning with " + question.strategy.text);
  auto control = std::make_shared<SearchControl>(watch, std::move(interruption), timeout);
  AnsweredQuestion chosen =
      answered_by_cluster(question, trace, platform,
                          [control = std::move(control)](const ClusterProgress& now) { return control->goes_on(now); });
  watch.aside([&] { note_times(chosen.problem); });
  return chosen;
}

AnsweredQuestion planned_for(const Question& question, std::optional<Seconds> timeout) {
  Trace trace = load_model(question.trace);
  Platform platform = load_platform(question.platform);
  refuse_choice_within(question, platform);
  if (asks_cluster(question)) return planned_for_cluster(question, trace, platform, timeout);
  PlanningWatch watch("planning with " + question.strategy.text);
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

AnsweredQuestion answered(Question question, std::optional<Seconds> timeout) {
  if (timeout && !asks_cluster(question)) {
    throw InputError(
        fmt::format("--timeout: only the search of 'cluster' ends with its best, found '{}'", question.strategy.text));
  }
  const Transfers transfers = std::exchange(question.transfers, Transfers::link);  // which plans are promised for
  AnsweredQuestion made = planned_for(question, timeout);
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
