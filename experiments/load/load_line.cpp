#include "experiments/load/load_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "experiments/load/load_record.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/choice/several_devices.h"
#include "experiments/study/model.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/io/input_error.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

AnsweredQuestion answered_at(const Question& question, const Platform& platform) {
  const Trace trace = load_model(question.trace);
  if (asks_cluster(question)) return answered_by_cluster(question, trace, platform);
  if (auto chosen = chosen_for_devices(question, trace, platform)) return *std::move(chosen);
  BudgetedProblem made = budgeted_problem_of(question, trace, platform);
  Answer answer = std::move(plimsoll::answer(question, made.problem, std::span(&made.budget, 1)).front());
  return {question, std::move(made.problem), std::move(answer)};
}

/// Asks each value once.
class AskedLine {
 public:
  using Tell = std::function<void(const LoadPoint&)>;

  AskedLine(const LoadQuestion& question, const Platform& platform, std::size_t strategy, Tell tell)
      : question_(question), platform_(platform), strategy_(strategy), tell_(std::move(tell)) {}

  void search() {
    const std::optional<std::uint32_t> largest =
        largest_that(question_.range, [&](std::uint32_t value) { return fits(value); });
    if (!largest) return;
    if (question_.within) {
      largest_that({question_.range.from, *largest, question_.range.step},
                   [&](std::uint32_t value) { return fits(value) && *at(value).makespan <= *question_.within; });
    }
    const std::uint64_t steps = (*largest - question_.range.from) / question_.range.step;
    for (std::uint64_t k = 0; k < question_.points; ++k) at(question_.range.at(steps * k / question_.points));
  }

 private:
  const LoadPoint& at(std::uint32_t value) {
    const auto found = known_.find(value);
    if (found != known_.end()) return found->second;
    const LoadPoint& made = known_.emplace(value, load_point(question_, platform_, strategy_, value)).first->second;
    tell_(made);
    return made;
  }
  bool fits(std::uint32_t value) { return at(value).outcome == Outcome::feasible; }

  const LoadQuestion& question_;
  const Platform& platform_;
  std::size_t strategy_;
  Tell tell_;
  std::map<std::uint32_t, LoadPoint> known_;
};

LoadBoundPoint bound_at(const LoadQuestion& question, const Platform& platform, std::uint32_t value) {
  const Problem problem = plain_problem(question, platform, value);
  const LowerBounds bounds = lower_bounds(problem, 1);
  return {value, bounds.memory, bounds.memory_by ? problem.graph[*bounds.memory_by].name : ""};
}

/// The largest value whose bound is within the memory, and values up to it. A value that no model has does not fit.
void search_bound(const LoadQuestion& question, const Platform& platform,
                  const std::function<void(const LoadBoundPoint&)>& tell) {
  std::map<std::uint32_t, bool> known;
  const auto fits = [&](std::uint32_t value) {
    const auto [place, is_new] = known.try_emplace(value, false);
    if (!is_new) return place->second;
    try {
      const LoadBoundPoint made = bound_at(question, platform, value);
      place->second = made.least <= question.memory;
      tell(made);
    } catch (const InputError&) {  // the strategies' points say why
    }
    return place->second;
  };
  const std::optional<std::uint32_t> largest = largest_that(question.range, fits);
  if (!largest) return;
  const std::uint64_t steps = (*largest - question.range.from) / question.range.step;
  for (std::uint64_t k = 0; k < question.points; ++k) fits(question.range.at(steps * k / question.points));
}

}  // namespace

std::optional<double> LoadQuestion::samples_at(std::uint32_t value) const {
  if (!batch) return std::nullopt;
  return static_cast<double>(varied == Varied::batch ? value : *batch) * base.micro_batches;
}

std::optional<double> LoadQuestion::tokens_at(std::uint32_t value) const {
  const std::optional<double> samples = samples_at(value);
  if (!samples || !sequence) return std::nullopt;
  return *samples * static_cast<double>(varied == Varied::sequence ? value : *sequence);
}

const LoadPoint* LoadLine::at(std::uint32_t value) const {
  const auto found = std::ranges::find(points, value, &LoadPoint::value);
  return found == points.end() ? nullptr : &*found;
}

const LoadPoint* LoadLine::largest() const {
  const LoadPoint* last = nullptr;
  for (const LoadPoint& point : points) {
    if (point.outcome == Outcome::feasible) last = &point;
  }
  return last;
}

const LoadPoint* LoadLine::largest_within(Seconds limit) const {
  const LoadPoint* last = nullptr;
  for (const LoadPoint& point : points) {
    if (point.outcome == Outcome::feasible && *point.makespan <= limit) last = &point;
  }
  return last;
}

std::vector<std::string> default_load_strategies(const Trace& trace, const Platform& platform) {
  const bool is_chain = std::holds_alternative<Chain>(trace.model);
  if (platform.devices.size() == 1) {
    if (is_chain) return {"store_all", "full_recompute", "rotor", "offload_greedy", "rotor|offload_greedy"};
    return {"store_all", "policy(rule=megatron.full+jax.nothing_saveable)", "snapshot(offload=no)", "offload_greedy",
            "snapshot"};
  }
  if (is_chain) return {"rotor", "rotor|offload_greedy", "1f1b|rotor", "zero3", "zero3|rotor", "cluster"};
  return {"snapshot(offload=no)", "snapshot", "megatron", "zero3", "cluster"};
}

Problem plain_problem(const LoadQuestion& question, const Platform& platform, std::uint32_t value) {
  Question plainly = question.base;
  plainly.trace = question.model_at(value);
  plainly.strategy = {std::string(store_all_strategy.name), {pass_of(store_all_strategy)}};
  return budgeted_problem_of(plainly, load_model(plainly.trace), platform).problem;
}

LoadPoint load_point(const LoadQuestion& question, const Platform& platform, std::size_t strategy,
                     std::uint32_t value) {
  Question asked = question.base;
  asked.trace = question.model_at(value);
  asked.strategy = question.strategies.at(strategy);
  LoadPoint point{.value = value};
  try {
    const AnsweredQuestion made = answered_at(asked, platform);
    const Answer& answer = made.answer;
    point.outcome = answer.outcome;
    point.reason = answer.reason;
    if (made.question.strategy.text != asked.strategy.text) point.chosen = made.question.strategy.text;
    if (answer.bounds) point.bound = answer.bounds->memory;
    if (answer.feasible()) {
      point.peak = answer.metrics->peak;
      point.makespan = answer.metrics->makespan;
      point.gap = answer.gap;
    } else {
      point.smallest = answer.smallest_feasible;
      point.smallest_is_proven = answer.smallest_is_proven;
    }
  } catch (const InputError& error) {  // another value or another strategy may do
    point.outcome = Outcome::refused;
    point.reason = error.what();
  }
  return point;
}

std::optional<LoadAnswer> load_lines(const LoadQuestion& question, const Platform& platform, std::size_t jobs) {
  LoadAnswer answer;
  std::vector<Json> tasks;
  for (std::size_t s = 0; s < question.strategies.size(); ++s) {
    answer.lines.push_back({question.strategies[s].text, {}});
    tasks.push_back(s);
  }
  tasks.push_back(question.strategies.size());
  const Interruption interruption;
  Progress progress(tasks.size(), "load lines");
  const auto work = [&](const Json& task, const std::function<void(const Json&)>& reply) {
    const std::size_t line = task.get<std::size_t>();
    if (line == question.strategies.size()) {
      search_bound(question, platform, [&](const LoadBoundPoint& point) { reply(to_json(point)); });
    } else {
      AskedLine(question, platform, line, [&](const LoadPoint& point) { reply(to_json(point)); }).search();
    }
    reply(nullptr);
  };
  WorkerPool pool(std::min(jobs, tasks.size()), interruption, work);
  const bool is_done = pool.run(tasks, {.record =
                                            [&](std::size_t line, std::string_view text) {
                                              const Json record = Json::parse(text);
                                              if (record.is_null()) return progress.add();
                                              if (line == answer.lines.size()) {
                                                answer.bounds.push_back(load_bound_of(record));
                                              } else {
                                                answer.lines[line].points.push_back(load_point_of(record));
                                              }
                                            },
                                        .failed =
                                            [&](std::size_t, const TaskFailure& failure) {
                                              if (answer.exit_code != 0) return;
                                              answer.exit_code = failure.exit_code;
                                              answer.trouble = failure.message;
                                            },
                                        .tick = [&] { progress.show(); }});
  if (!is_done) return std::nullopt;
  for (LoadLine& line : answer.lines) std::ranges::sort(line.points, {}, &LoadPoint::value);
  std::ranges::sort(answer.bounds, {}, &LoadBoundPoint::value);
  return answer;
}

}  // namespace plimsoll
