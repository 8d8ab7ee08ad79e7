#include "experiments/study/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "experiments/study/class_bound.h"
#include "experiments/study/model.h"
#include "experiments/study/reserved_memory.h"
#include "experiments/study/within.h"
#include "platforms/platform_file.h"
#include "sim/bound/guaranteed_peak.h"
#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/tolerance.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/program.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/input_error.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/contention.h"
#include "sim/measure/host_issue.h"
#include "sim/measure/one_call.h"
#include "sim/memory/replay.h"
#include "sim/model/same_tape.h"
#include "strategies/compose/plan.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// Beyond, the most by any timing takes seconds, and is found where it is asked for only.
constexpr std::size_t most_steps_of_devices = 20'000;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The judge and a second count of memory, for every schedule that leaves this program. Returns the peaks counted.
std::vector<Bytes> judged_peaks(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform, 1);
  if (!violations.empty()) {
    throw BrokenPromise(fmt::format("the schedule of '{}' breaks the rule {}: {}", schedule.strategy,
                                    name_of(violations[0].rule), violations[0].what));
  }
  std::vector<Bytes> counted = recount(schedule, timeline, problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) {
    if (counted[m] == timeline.peaks[m].bytes) continue;
    throw BrokenPromise(fmt::format("memory '{}': the engine counts a peak of {} B, check() {} B",
                                    problem.platform.memories[m].name, timeline.peaks[m].bytes.count,
                                    counted[m].count));
  }
  return counted;
}

void hold_to_promise(const std::string& strategy, const PlannedParts& promise, const Metrics& metrics) {
  if (metrics.peak != promise.peak) {
    throw BrokenPromise(fmt::format("'{}' promised a peak of {} B, the simulation has {} B", strategy,
                                    promise.peak.count, metrics.peak.count));
  }
  const double promised = promise.makespan.value, simulated = metrics.makespan.value;
  if (!agree(promised, simulated)) {
    throw BrokenPromise(fmt::format("'{}' promised {} s, the simulation takes {} s", strategy, promised, simulated));
  }
}

/// Why the best that a planner has does not fit the budget: as its host issues kernels, copies are ahead of what they
/// would be.
std::optional<std::string> beyond_budget(const Answer& answer, std::optional<Bytes> budget) {
  if (!answer.issue || !budget || answer.metrics->peak <= *budget) return std::nullopt;
  return fmt::format("while its host issues kernels it needs {} B, {} B more", answer.metrics->peak.count,
                     (answer.metrics->peak - *budget).count);
}

std::string lacking(const Platform& platform, const Overfull& memory) {
  return fmt::format("it needs {} B of '{}', which has {} B", memory.peak.count, platform[memory.memory].name,
                     memory.limit.count);
}

/// Why a schedule does not fit a host or a disk. Planners answer for devices.
std::optional<std::string> host_or_disk_below(const Problem& problem, const Schedule& schedule,
                                              const std::vector<Bytes>& peaks) {
  for (const Overfull& memory : overfull(peaks, problem.platform, schedule)) {
    if (memory.computes) {
      throw BrokenPromise(fmt::format("'{}' needs {} B of '{}', above its budget of {} B", schedule.strategy,
                                      memory.peak.count, problem.platform[memory.memory].name, memory.limit.count));
    }
    return lacking(problem.platform, memory);
  }
  return std::nullopt;
}

/// How much longer the schedule takes than with every copy and every update on a host alone; differences of rounding
/// are none.
Seconds contention_of(const Problem& problem, const Schedule& schedule) {
  const auto moves = [&](const Step& step) {
    return step.work.is_transfer() || schedule[step.stream].way.computes_elsewhere();
  };
  if (std::ranges::none_of(schedule.steps, moves)) return {};
  const Seconds shared = simulate_event(schedule, problem.platform).makespan;
  const Seconds alone = simulate_event(without_contention(schedule, problem.platform), problem.platform).makespan;
  return shared - alone <= model_tolerance * shared ? Seconds{} : shared - alone;
}

/// What running stages by themselves adds to a schedule, where the trace says what plain training takes: also where
/// their backwards are in two parts, which are no plain training and have no share of it.
std::optional<Seconds> cutting_of(const Problem& problem, const Schedule& schedule) {
  if (!problem.chain || !problem.chain->plain || problem.times_rescaled) return std::nullopt;
  Seconds alone;
  if (is_one_call(problem, schedule)) return alone;
  for (const Step& step : schedule.steps) {
    if (step.op == no_op || step.kind == StepKind::update || step.work.is_transfer()) continue;
    if (!collective_of(problem.graph[step.op])) alone += step.work.seconds;
  }
  return std::max(0.0, 1 - problem.chain->plain->share()) * alone;
}

/// Lower bounds of one problem, each worked out once.
class Bounds {
 public:
  explicit Bounds(const Problem& problem) : problem_(problem) {}

  const LowerBounds& of(std::size_t devices, Stays stays) {
    const auto [place, is_new] = known_.try_emplace({devices, stays});
    if (is_new) place->second = lower_bounds(problem_, devices, stays);
    return place->second;
  }
  LowerBounds of(const Schedule& schedule, Stays stays) {
    const std::size_t devices = devices_used(schedule);
    if (schedule.codecs.empty()) return of(devices, stays);
    return lower_bounds(problem_, devices, stays, schedule.codecs);
  }

 private:
  const Problem& problem_;
  std::map<std::pair<std::size_t, Stays>, LowerBounds> known_;  // of schedules that pack nothing
};

/// With bounds that hold for all that the passes could have made.
Answer infeasible_answer(Bounds& bounds, const Problem& problem, std::span<const Pass> passes, const Infeasible& why) {
  Answer answer;
  answer.reason = why.reason;
  answer.smallest_feasible = why.smallest;
  answer.smallest_is_proven = why.smallest_is_proven;
  answer.stays = stays_with(passes);
  const bool on_several = std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->partitions(); });
  if (!packs(passes)) answer.bounds = bounds.of(on_several ? problem.platform.devices.size() : 1, answer.stays);
  return answer;
}

/// The op that needs the most of the fullest device where the passes plan for that budget; empty where none does.
std::string fullest_op(const Problem& problem, std::span<const Pass> passes, Bytes budget) {
  const PlanOutcome outcome = plan(problem, passes, budget);
  const Plan* made = std::get_if<Plan>(&outcome);
  if (made == nullptr) return {};
  const Timeline timeline = simulate_event(made->schedule, problem.platform);
  const auto peak_of = [&](const Device& device) { return timeline.peaks[device.memory.index].bytes; };
  const MemoryId memory = std::ranges::max_element(problem.platform.devices, {}, peak_of)->memory;
  const MemoryPeak& moment = timeline.peaks[memory.index];
  if (moment.at_start) return {};
  const Step& step = made->schedule[moment.step];
  return step.op == no_op ? std::string(written(step.kind)) : problem.graph[step.op].name;
}

/// The engine of a question, with one server for SimGrid's simulations, started when there is one.
class Simulator {
 public:
  Simulator(Engine engine, const Platform& platform) : engine_(engine), platform_(platform) {}

  Timeline simulate(const Schedule& schedule) try {
    const Program program = flatten(schedule, platform_);
    if (engine_ == Engine::event || !is_anything_shared(program)) return simulate_event(program);
    if (!server_) server_.emplace();
    return server_->simulate(program);
  } catch (const SimulationInterrupted&) {
    throw;
  } catch (const EngineError& error) {
    throw InputError(fmt::format("platform '{}': {}", platform_.name, error.what()));
  }

 private:
  Engine engine_;
  const Platform& platform_;
  std::optional<SimgridForkserver> server_;
};

/// As it is read: options that are not the default.
std::string text_of(std::span<const Pass> passes) {
  std::string text;
  for (const Pass& pass : passes) {
    std::string options;
    for (const OptionInfo& option : pass.strategy->options) {
      const std::string value = pass.options.text(option);
      if (value != pass.strategy->options.default_text(option))
        options += fmt::format("{}{}={}", options.empty() ? "" : ",", option.name, value);
    }
    text += fmt::format("{}{}", text.empty() ? "" : "|", pass.strategy->name);
    if (!options.empty()) text += "(" + options + ")";
  }
  return text;
}

/// The strategy with the number of replicas that a search for splits has chosen: schedules have the micro-batches of
/// one of them, and who reads one asks for as many.
std::string with_chosen_replicas(const Pipeline& strategy, const Problem& problem) {
  if (!problem.mesh) return strategy.text;
  const std::optional<std::size_t> axis = problem.mesh->axis("replicas");
  const std::uint32_t chosen = axis ? problem.mesh->axes[*axis].ranks : 1;
  std::vector<Pass> passes = strategy.passes;
  bool is_chosen = false;
  for (Pass& pass : passes) {
    const SplitOptions* splits = pass.options.get_if<SplitOptions>();
    if (splits == nullptr || splits->replicas) continue;
    pass.options.change<SplitOptions>().replicas = chosen;
    is_chosen = true;
  }
  return is_chosen ? text_of(passes) : strategy.text;
}

/// Whether what is simulated is the schedule itself.
bool runs_as_planned(const Question& question, const Problem& problem) {
  return question.transfers == Transfers::link && !have_issuing_hosts(problem.platform);
}

/// What a schedule comes to, whatever the budget: simulated and judged once.
struct Judged {
  Answer answer;             ///< as if it fitted
  std::vector<Bytes> peaks;  ///< by memory
};

Timeline timeline_of(const Question& question, const Problem& problem, Simulator& simulator, const Schedule& schedule) {
  if (runs_as_planned(question, problem)) return simulator.simulate(schedule);
  const Retimed run = as_run(question, problem, schedule);
  return of_first(run, simulator.simulate(run.schedule));
}

Judged judged(const Question& question, const Problem& problem, Bounds& bounds, Simulator& simulator,
              Schedule schedule) {
  Judged made;
  Answer& answer = made.answer;
  schedule.strategy = with_chosen_replicas(question.strategy, problem);
  schedule.decisions = problem.decisions;
  schedule.trace_from = question.trace;
  schedule.platform_from = question.platform;
  const double started = now_s();
  answer.timeline = timeline_of(question, problem, simulator, schedule);
  answer.metrics = measure(problem, schedule, *answer.timeline);
  if (have_issuing_hosts(problem.platform)) answer.issue = longest_issue(schedule, problem);
  answer.time_parts = time_parts(problem, schedule, *answer.timeline);
  std::variant<TimeInterval, std::string> interval = time_interval(problem, schedule, *answer.timeline);
  if (auto* of = std::get_if<TimeInterval>(&interval)) {
    answer.interval = std::move(*of);
  } else {
    answer.no_interval = std::get<std::string>(std::move(interval));
  }
  answer.simulate_s = now_s() - started;
  made.peaks = judged_peaks(problem, schedule, *answer.timeline);
  answer.outcome = Outcome::feasible;
  answer.cutting = cutting_of(problem, schedule);
  answer.errors = predicted_errors(schedule, problem.graph);
  if (question.transfers == Transfers::link) answer.contention = contention_of(problem, schedule);
  answer.stays = stays_in(schedule, problem.graph, problem.platform);
  answer.bounds = bounds.of(schedule, answer.stays);
  const bool is_quick = schedule.steps.size() * problem.platform.devices.size() <= most_steps_of_devices;
  for (const Device& device : problem.platform.devices) {
    if (!is_quick && question.within != Within::guaranteed) break;
    answer.guaranteed.push_back(guaranteed_peak(schedule, problem.platform, device.memory));
  }
  answer.schedule = std::move(schedule);
  return made;
}

/// What the allocator takes of each device for a schedule that fits, or what does not fit because of it.
void reserve(const Question& question, const Problem& problem, Answer& answer) {
  const std::vector<ReservedPeak> reserved = peak_reserved(*answer.schedule, *answer.timeline, problem.platform,
                                                           question.allocator, step_orders(problem, *answer.schedule));
  for (const Device& device : problem.platform.devices) answer.reserved.push_back(reserved[device.memory.index]);
  const std::vector<std::string> failed = out_of_memory(question.allocator.kind, problem.platform, answer.reserved);
  if (!answer.feasible() || failed.empty()) return;
  answer.outcome = Outcome::out_of_memory;
  answer.reason = fmt::format("{}", fmt::join(failed, "; "));
}

/// Makes the answer for one of the budgets of that for another one: of the schedule only the budget is different.
void answer_for(const Question& question, const Problem& problem, const PlannedParts& promise,
                std::optional<Bytes> budget, ClassBounds& of_class, Answer& answer) {
  answer.schedule->budget = answer.budget = budget;
  answer.promised_peak = promise.peak;
  answer.promised_makespan = promise.makespan;
  answer.gap = promise.gap;
  if (question.transfers == Transfers::link && promise.gap != 0.0) {
    const std::optional<double> gap = of_class.gap(*answer.schedule, *answer.timeline, budget);
    if (gap && (!answer.gap || *gap < *answer.gap)) answer.gap = gap;
  }
  answer.note = promise.note;
  answer.candidates = promise.candidates;
  if (answer.reserved.empty()) reserve(question, problem, answer);
}

bool same(const PlannedParts& a, const PlannedParts& b) {
  return a.partition == b.partition &&
         std::ranges::equal(a.tapes, b.tapes, [](const Tape& x, const Tape& y) { return same(x, y); });
}

/// Places of outcomes with the same tapes, in order of the first of them; every infeasible one is alone.
std::vector<std::vector<std::size_t>> together(const std::vector<PartsOutcome>& outcomes) {
  std::vector<std::vector<std::size_t>> groups;
  std::multimap<std::pair<Bytes, Seconds>, std::size_t> seen;  // by what they promise: indices of groups
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    const PlannedParts* parts = std::get_if<PlannedParts>(&outcomes[b]);
    const auto of_group = [&](std::size_t g) -> const PlannedParts& {
      return std::get<PlannedParts>(outcomes[groups[g].front()]);
    };
    std::size_t group = groups.size();
    if (parts != nullptr) {
      const std::pair promise(parts->peak, parts->makespan);
      const auto [begin, end] = seen.equal_range(promise);
      const auto found =
          std::find_if(begin, end, [&](const auto& entry) { return same(of_group(entry.second), *parts); });
      if (found != end) group = found->second;
      if (found == end) seen.emplace(promise, group);
    }
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(b);
  }
  return groups;
}

/// A pattern that no parameter's name is like, in words; empty: there is none.
std::string unmatched_group(const std::vector<ParameterGroup>& groups, const std::variant<Chain, Graph>& model) {
  if (groups.empty()) return "";
  std::vector<std::string> names;
  if (const Chain* chain = std::get_if<Chain>(&model)) {
    for (const Parameter& each : chain->parameters) names.push_back(each.name);
  } else {
    for (const Tensor& each : std::get<Graph>(model).tensors) {
      if (each.kind == TensorKind::parameter) names.push_back(each.name);
    }
  }
  for (const ParameterGroup& group : groups) {
    const Optimizers alone{Optimizer::none, {group}};
    if (std::ranges::any_of(names, [&](const std::string& name) { return alone.group_of(name) == 0; })) continue;
    const std::string such = names.empty() ? "" : fmt::format(", such as '{}'", names[names.size() / 2]);
    return fmt::format("--parameter-group: '{}' matches no parameter's name{}{}", group.pattern, such,
                       pattern_suggestion(group.pattern, names));
  }
  return "";
}

/// The problem behind a question, without the transforms of its strategy.
ProblemOutcome untransformed(const Question& question, Trace trace, Platform platform) {
  std::optional<Evaluation> evaluation = question.evaluation;
  if (evaluation) evaluation = sized_for(question.trace, *evaluation);
  const ProblemOptions options{.micro_batches = question.micro_batches,
                               .optimizer = question.optimizer,
                               .parameter_groups = question.parameter_groups,
                               .states = question.states,
                               .update_kernels = question.update_kernels,
                               .keeps_averages = question.ema,
                               .clips_gradients = question.clip_norm,
                               .evaluation = evaluation,
                               .gradients = question.gradients,
                               .backward = backward_for(question.strategy.passes),
                               .inner = inner_for(question.strategy.passes)};
  const std::string unmatched = unmatched_group(question.parameter_groups, trace.model);
  if (!unmatched.empty()) return fmt::format("trace '{}': {}", question.trace, unmatched);
  ProblemOutcome made = make_problem(std::move(trace.model), std::move(platform), options);
  if (const std::string* why = std::get_if<std::string>(&made)) {
    return fmt::format("trace '{}' on platform '{}': {}", question.trace, question.platform, *why);
  }
  if (trace.allocations) {
    std::get<Problem>(made).allocations = std::make_shared<const ChainAllocations>(std::move(*trace.allocations));
  }
  return made;
}

Problem sound_untransformed(const Question& question, Trace trace, Platform platform) {
  ProblemOutcome made = untransformed(question, std::move(trace), std::move(platform));
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  return std::move(std::get<Problem>(made));
}

/// Of a problem without transforms.
std::optional<Bytes> in_bytes(const StatedBudget& budget, const Problem& problem) {
  if (!budget) return std::nullopt;
  if (const Bytes* bytes = std::get_if<Bytes>(&*budget)) return *bytes;
  const Pass store_all = pass_of(store_all_strategy);
  const std::optional<Bytes> peak = smallest_feasible(problem, std::span(&store_all, 1));
  EXPECTS(peak.has_value());  // it has one schedule
  return of(std::get<Share>(*budget), *peak);
}

/// The budget where none is given. Where parts lie on devices of unequal memories, planners keep to each one's own.
std::optional<Bytes> capacity_for(const Problem& problem, std::span<const Pass> passes) {
  const Platform& platform = problem.platform;
  if (std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->partitions(); })) {
    return capacity_of(platform);
  }
  const auto of_device = [&](const Device& device) { return platform[device.memory].capacity; };
  if (!problem.mesh) return of_device(platform.devices.front());
  std::optional<Bytes> least;
  for (const Device& device : platform.devices) {
    const std::optional<Bytes> own = of_device(device);
    if (own) least = std::min(least.value_or(*own), *own);
  }
  return least;
}

}  // namespace

Retimed as_run(const Question& question, const Problem& problem, const Schedule& schedule) {
  Retimed run{schedule, {}};
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) run.steps.push_back(id_at<StepId>(s));
  if (have_issuing_hosts(problem.platform)) run = issued_by_hosts(schedule, problem);
  if (question.transfers == Transfers::link) return run;
  Retimed sent = with_transfers(run.schedule, problem.platform, question.transfers);
  for (StepId& step : run.steps) step = sent.steps[step.index];
  return {std::move(sent.schedule), std::move(run.steps)};
}

ProblemOutcome problem_of(const Question& question, Trace trace, Platform platform) {
  ProblemOutcome made = untransformed(question, std::move(trace), std::move(platform));
  if (std::holds_alternative<std::string>(made)) return made;
  return transformed(std::get<Problem>(std::move(made)), question.strategy.passes);
}

Problem problem_of(const Question& question) {
  return transformed(sound_untransformed(question, load_model(question.trace), load_platform(question.platform)),
                     question.strategy.passes);
}

BudgetedProblem budgeted_problem_of(const Question& question) {
  return budgeted_problem_of(question, load_model(question.trace), load_platform(question.platform));
}

BudgetedProblem budgeted_problem_of(const Question& question, Trace trace, Platform platform) {
  Problem problem = sound_untransformed(question, std::move(trace), std::move(platform));
  const std::optional<Bytes> budget = in_bytes(question.memory, problem);
  const double started = now_s();
  problem = transformed(std::move(problem), question.strategy.passes);
  return {std::move(problem), budget, now_s() - started};
}

Question question_of(const Schedule& schedule, const std::string& file, const std::string& trace,
                     const std::string& platform) {
  const auto given_or = [&](const std::string& given, const std::string& from, const char* option) {
    if (!given.empty()) return given;
    if (from.empty()) throw InputError(fmt::format("{}: does not say which file it is for; give --{}", file, option));
    return from;
  };
  const std::string& machine = schedule.platform_from.empty() ? schedule.platform : schedule.platform_from;
  std::vector<Pass> changes = changes_of(schedule.strategy, file + ": strategy");
  const std::uint32_t slices = slices_of(changes);
  if (schedule.micro_batches % slices != 0) {
    throw InputError(fmt::format("{}: strategy: '{}' cuts micro-batches into {} slices each, and the schedule has {}",
                                 file, schedule.strategy, slices, schedule.micro_batches));
  }
  const std::string on = given_or(platform, machine, "platform");
  const auto shares = [](const Pass& pass) {
    return pass.strategy->shares_micro_batches() || pass.options.get_if<SplitOptions>() != nullptr;
  };
  std::uint32_t replicas = 1;
  if (std::ranges::any_of(changes, shares)) replicas = replicas_of(changes, load_platform(on).devices.size());
  return {.trace = given_or(trace, schedule.trace_from, "trace"),
          .platform = on,
          .strategy = {schedule.strategy, std::move(changes)},
          .micro_batches = schedule.micro_batches / slices * replicas,
          .optimizer = schedule.optimizer,
          .parameter_groups = schedule.parameter_groups,
          .states = schedule.states,
          .update_kernels = schedule.update_kernels,
          .ema = schedule.keeps_averages,
          .clip_norm = schedule.clips_gradients,
          .evaluation = schedule.evaluation,
          .gradients = schedule.gradients};
}

Problem problem_of(const Schedule& schedule, const std::string& file, const Question& question) {
  Problem problem = sound_untransformed(question, load_model(question.trace), load_platform(question.platform));
  if (schedule.decisions.empty()) {
    problem = transformed(std::move(problem), question.strategy.passes);
  } else {
    std::variant<Problem, CannotBuild> made =
        transformed(std::move(problem), question.strategy.passes, schedule.decisions);
    if (const CannotBuild* cannot = std::get_if<CannotBuild>(&made)) {
      refuse(file, "decisions" + cannot->key, cannot->why);
    }
    problem = std::get<Problem>(std::move(made));
  }
  if (schedule.trace != problem.graph.name || schedule.platform != problem.platform.name) {
    throw InputError(fmt::format("{}: made for trace '{}' on platform '{}', not for '{}' on '{}'", file, schedule.trace,
                                 schedule.platform, problem.graph.name, problem.platform.name));
  }
  return problem;
}

void refuse_ranks(const Problem& problem) {
  if (!problem.mesh) return;
  throw InputError(
      fmt::format("'{}' is shared out among {} ranks, each device standing for all of them: such plans are "
                  "simulated, and run by 'plimsoll replay' only",
                  problem.graph.name, problem.mesh->ranks()));
}

std::optional<Bytes> capacity_of(const Platform& platform) {
  const auto of_device = [&](const Device& device) { return platform[device.memory].capacity; };
  const auto unequal = std::ranges::adjacent_find(platform.devices, std::ranges::not_equal_to{}, of_device);
  return unequal == platform.devices.end() ? of_device(platform.devices.front()) : std::nullopt;
}

std::optional<std::string> beyond_host_or_disk(const Problem& problem, const Schedule& schedule) {
  const Timeline timeline = simulate(schedule, problem.platform, Engine::event);
  const std::vector<Bytes> peaks = recount(schedule, timeline, problem.platform);
  for (const Overfull& memory : overfull(peaks, problem.platform, schedule)) {
    if (!memory.computes) return lacking(problem.platform, memory);
  }
  return std::nullopt;
}

Timeline simulate(const Schedule& schedule, const Platform& platform, Engine engine) {
  return Simulator(engine, platform).simulate(schedule);
}

void answer(const Question& question, const Problem& problem, std::span<const std::optional<Bytes>> budgets,
            const TakeAnswer& take, double transform_s) {
  std::vector<std::optional<Bytes>> limits(budgets.begin(), budgets.end());
  for (std::optional<Bytes>& limit : limits) {
    if (!limit) limit = capacity_for(problem, question.strategy.passes);
  }
  const double started = now_s();
  const std::vector<PartsOutcome> plans = plan_parts(problem, question.strategy.passes, limits);
  const double planned_s = (transform_s + now_s() - started) / static_cast<double>(budgets.size());
  Bounds bounds(problem);
  ClassBounds of_class(problem, question.strategy.passes);
  Simulator simulator(question.engine, problem.platform);
  for (const std::vector<std::size_t>& places : together(plans)) {
    if (const Infeasible* why = std::get_if<Infeasible>(&plans[places.front()])) {
      Answer answer = infeasible_answer(bounds, problem, question.strategy.passes, *why);
      if (why->smallest && packs(question.strategy.passes)) {
        answer.smallest_by = fullest_op(problem, question.strategy.passes, *why->smallest);
      }
      answer.budget = limits[places.front()];
      answer.solve_s = planned_s;
      take(places.front(), answer);
      continue;
    }
    const auto of = static_cast<double>(places.size());
    const auto promise = [&](std::size_t b) -> const PlannedParts& { return std::get<PlannedParts>(plans[b]); };
    const double before = now_s();
    Schedule schedule = plan_of(problem, promise(places.front()), limits[places.front()]).schedule;
    const double lowered_s = now_s() - before;
    Judged made = judged(question, problem, bounds, simulator, std::move(schedule));
    made.answer.solve_s = planned_s + lowered_s / of;
    made.answer.simulate_s /= of;
    for (const std::size_t b : places) {
      hold_to_promise(question.strategy.text, promise(b), *made.answer.metrics);
      answer_for(question, problem, promise(b), limits[b], of_class, made.answer);
      std::optional<std::string> why = beyond_budget(made.answer, limits[b]);
      if (!why) why = host_or_disk_below(problem, *made.answer.schedule, made.peaks);
      if (!why) {
        take(b, made.answer);
        continue;
      }
      Answer unfit = infeasible_answer(bounds, problem, question.strategy.passes, {*why, std::nullopt});
      unfit.budget = limits[b];
      unfit.solve_s = made.answer.solve_s;
      unfit.simulate_s = made.answer.simulate_s;
      take(b, unfit);
    }
  }
}

std::optional<Bytes> smallest_feasible(const Problem& problem, std::span<const Pass> passes) {
  constexpr Bytes nearly_nothing{1};
  const PlanOutcome outcome = plan(problem, passes, nearly_nothing);
  if (const Infeasible* why = std::get_if<Infeasible>(&outcome)) return why->smallest;
  return std::get<Plan>(outcome).peak;
}

std::vector<Answer> answer(const Question& question, const Problem& problem,
                           std::span<const std::optional<Bytes>> budgets, double transform_s) {
  std::vector<Answer> answers(budgets.size());
  answer(
      question, problem, budgets, [&](std::size_t b, const Answer& made) { answers[b] = made; }, transform_s);
  return answers;
}

Answer answer(const Question& question, const Problem& problem, Schedule schedule) {
  Bounds bounds(problem);
  Simulator simulator(question.engine, problem.platform);
  Judged made = judged(question, problem, bounds, simulator, std::move(schedule));
  Answer& answer = made.answer;
  const std::optional<Bytes> stated = answer.schedule->budget;
  answer.budget = stated ? stated : capacity_of(problem.platform);
  for (const Overfull& memory : overfull(made.peaks, problem.platform, *answer.schedule)) {
    answer.reason += fmt::format("{}{} B on '{}', over its {} B", answer.reason.empty() ? "it keeps " : ", ",
                                 memory.peak.count, problem.platform[memory.memory].name, memory.limit.count);
  }
  if (!answer.reason.empty()) answer.outcome = Outcome::infeasible;
  reserve(question, problem, answer);
  if (answer.feasible()) refuse_beyond(question.within, problem.platform, answer);
  return std::move(made.answer);
}

}  // namespace plimsoll
