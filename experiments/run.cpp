#include "experiments/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "experiments/model.h"
#include "platforms/platform_file.h"
#include "sim/core/check.h"
#include "sim/core/contention.h"
#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/memory/replay.h"
#include "strategies/plan.h"

namespace plimsoll {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The judge and a second count of memory, for every schedule that leaves this program. Returns the peaks counted.
std::vector<Bytes> hold_to_promise(const Problem& problem, const Plan& plan, const Answer& answer) {
  const std::vector<Violation> violations = check(plan.schedule, problem.graph, problem.platform, 1);
  if (!violations.empty()) {
    throw BrokenPromise(fmt::format("the schedule of '{}' breaks the rule {}: {}", plan.schedule.strategy,
                                    name_of(violations[0].rule), violations[0].what));
  }
  std::vector<Bytes> counted = recount(plan.schedule, *answer.timeline, problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) {
    if (counted[m] == answer.timeline->peaks[m].bytes) continue;
    throw BrokenPromise(fmt::format("memory '{}': the engine counts a peak of {} B, check() {} B",
                                    problem.platform.memories[m].name, answer.timeline->peaks[m].bytes.count,
                                    counted[m].count));
  }
  if (answer.metrics->peak != plan.peak) {
    throw BrokenPromise(fmt::format("'{}' promised a peak of {} B, the simulation has {} B", plan.schedule.strategy,
                                    plan.peak.count, answer.metrics->peak.count));
  }
  const double promised = plan.makespan.value, simulated = answer.metrics->makespan.value;
  if (!(std::abs(promised - simulated) <= 1e-9 * std::max(promised, simulated))) {
    throw BrokenPromise(
        fmt::format("'{}' promised {} s, the simulation takes {} s", plan.schedule.strategy, promised, simulated));
  }
  return counted;
}

/// Why a schedule does not fit a host or a disk. Planners answer for devices.
std::optional<std::string> beyond_host_or_disk(const Problem& problem, const Plan& plan,
                                               const std::vector<Bytes>& peaks) {
  for (const Overfull& memory : overfull(peaks, problem.platform, plan.schedule.budget)) {
    const Memory& of = problem.platform[memory.memory];
    if (of.device) {
      throw BrokenPromise(fmt::format("'{}' needs {} B of '{}', above its budget of {} B", plan.schedule.strategy,
                                      memory.peak.count, of.name, memory.limit.count));
    }
    return fmt::format("it needs {} B of '{}', which has {} B", memory.peak.count, of.name, memory.limit.count);
  }
  return std::nullopt;
}

/// How much longer the schedule takes than with every copy and every update on a host alone; differences of rounding
/// are none.
Seconds contention_of(const Problem& problem, const Schedule& schedule) {
  const auto moves = [&](const Step& step) {
    return step.work.is_transfer() || schedule[step.stream].kind == StreamKind::host;
  };
  if (std::ranges::none_of(schedule.steps, moves)) return {};
  const Seconds shared = simulate_event(schedule, problem.platform).makespan;
  const Seconds alone = simulate_event(without_contention(schedule, problem.platform), problem.platform).makespan;
  return shared - alone <= 1e-9 * shared ? Seconds{} : shared - alone;
}

Answer answer_of(const Question& question, const Problem& problem, PlanOutcome& outcome) {
  Answer answer;
  if (const Infeasible* none = std::get_if<Infeasible>(&outcome)) {
    answer.reason = none->reason;
    answer.smallest_feasible = none->smallest;
    answer.smallest_is_proven = none->smallest_is_proven;
    return answer;
  }
  Plan& plan = std::get<Plan>(outcome);
  plan.schedule.strategy = question.strategy;
  const double started = now_s();
  answer.timeline = simulate(plan.schedule, problem.platform, question.engine);
  answer.simulate_s = now_s() - started;
  answer.metrics = measure(problem, plan.schedule, *answer.timeline);
  const std::vector<Bytes> peaks = hold_to_promise(problem, plan, answer);
  if (const std::optional<std::string> why = beyond_host_or_disk(problem, plan, peaks)) {
    Answer none;
    none.reason = *why;
    none.simulate_s = answer.simulate_s;
    return none;
  }
  answer.feasible = true;
  answer.promised_peak = plan.peak;
  answer.promised_makespan = plan.makespan;
  answer.gap = plan.gap;
  answer.note = plan.note;
  answer.candidates = plan.candidates;
  answer.contention = contention_of(problem, plan.schedule);
  const std::vector<ReservedPeak> reserved =
      peak_reserved(plan.schedule, *answer.timeline, problem.platform, question.allocator);
  for (const Device& device : problem.platform.devices) {
    answer.peak_reserved.push_back(reserved[device.memory.index].reserved);
  }
  answer.schedule = std::move(plan.schedule);
  return answer;
}

}  // namespace

ProblemOutcome problem_of(const Question& question, Trace trace, Platform platform) {
  const ProblemOptions options{.micro_batches = question.micro_batches,
                               .budget = std::nullopt,
                               .optimizer = question.optimizer,
                               .states = question.states,
                               .gradients = question.gradients,
                               .backward = Backward::whole};
  ProblemOutcome made = make_problem(std::move(trace.model), std::move(platform), options);
  if (const std::string* why = std::get_if<std::string>(&made)) {
    return fmt::format("trace '{}' on platform '{}': {}", question.trace, question.platform, *why);
  }
  const std::vector<Pass> transforms = transforms_of(question.strategy, "--strategy");
  if (!transforms.empty()) return transformed(std::get<Problem>(made), transforms);
  return made;
}

Problem problem_of(const Question& question) {
  ProblemOutcome made = problem_of(question, load_model(question.trace), load_platform(question.platform));
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  return std::move(std::get<Problem>(made));
}

Problem problem_of(const Schedule& schedule, const std::string& file, const std::string& trace,
                   const std::string& platform) {
  Question question;
  question.trace = trace;
  question.platform = platform;
  question.strategy = schedule.strategy;
  question.micro_batches = schedule.micro_batches;
  question.optimizer = schedule.optimizer;
  question.states = schedule.states;
  question.gradients = schedule.gradients;
  Problem problem = problem_of(question);
  if (schedule.trace != problem.graph.name || schedule.platform != problem.platform.name) {
    throw InputError(fmt::format("{}: made for trace '{}' on platform '{}', not for '{}' on '{}'", file, schedule.trace,
                                 schedule.platform, problem.graph.name, problem.platform.name));
  }
  return problem;
}

Timeline simulate(const Schedule& schedule, const Platform& platform, Engine engine) {
  try {
    return engine == Engine::simgrid ? simulate_simgrid(schedule, platform) : simulate_event(schedule, platform);
  } catch (const SimulationInterrupted&) {
    throw;
  } catch (const EngineError& error) {
    throw InputError(fmt::format("platform '{}': {}", platform.name, error.what()));
  }
}

std::vector<Answer> answer(const Question& question, const Problem& problem,
                           std::span<const std::optional<Bytes>> budgets) {
  const std::vector<Pass> passes = parse_spec(question.strategy, "--strategy");
  std::vector<std::optional<Bytes>> limits(budgets.begin(), budgets.end());
  for (std::optional<Bytes>& limit : limits) {
    if (!limit) limit = budget_of(problem, DeviceId{0});
  }
  const double started = now_s();
  std::vector<PlanOutcome> outcomes = plan(problem, passes, limits);
  const double solve_s = (now_s() - started) / static_cast<double>(budgets.size());
  std::vector<Answer> answers;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    Answer& made = answers.emplace_back(answer_of(question, problem, outcomes[b]));
    made.budget = limits[b];
    made.solve_s = solve_s;
    made.bounds = made.schedule ? lower_bounds(problem, devices_used(*made.schedule),
                                               stays_in(*made.schedule, problem.graph, problem.platform))
                                : lower_bounds(problem, 1);
  }
  return answers;
}

}  // namespace plimsoll
