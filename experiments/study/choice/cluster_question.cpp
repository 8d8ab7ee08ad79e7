#include "experiments/study/choice/cluster_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "experiments/study/model.h"
#include "sim/core/tolerance.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/measure/contention.h"
#include "sim/measure/host_issue.h"
#include "sim/measure/lower_bounds.h"
#include "sim/measure/op_parts.h"
#include "sim/measure/rank_costs.h"
#include "sim/model/chain_graph.h"
#include "sim/model/device_classes.h"
#include "sim/model/repeated_layers.h"
#include "sim/model/stage_chain.h"
#include "strategies/compose/plan.h"
#include "strategies/hybrid/cluster/framework.h"
#include "strategies/list.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

constexpr std::size_t listed_points = 20;
constexpr std::uint32_t few_layers = 5;  // of the model that tells what its inner layers cost

const ClusterOptions& options_in(const Question& question) {
  return question.strategy.passes.front().options.as<ClusterOptions>();
}

Pipeline plain() {
  return {std::string(store_all_strategy.name), {pass_of(store_all_strategy)}};
}

void refuse_unlike_memories(const Platform& platform) {
  const auto capacity = [&](const Device& device) { return platform[device.memory].capacity; };
  const bool same_memory =
      std::ranges::adjacent_find(platform.devices, std::ranges::not_equal_to{}, capacity) == platform.devices.end();
  if (same_memory) return;
  throw InputError(fmt::format("cluster: the devices of '{}' have memories of unlike sizes", platform.name));
}

/// In speed; memories and links are their own.
Platform with_devices_as_the_first(Platform platform) {
  for (Device& device : platform.devices) {
    Device as_first = platform.devices.front();
    as_first.name = device.name;
    as_first.memory = device.memory;
    as_first.node = device.node;
    as_first.host = device.host;
    as_first.disk = device.disk;
    device = std::move(as_first);
  }
  return platform;
}

/// By node.
std::vector<std::uint32_t> devices_in_nodes(const Platform& platform) {
  std::map<std::uint32_t, std::uint32_t> count;
  for (const Device& device : platform.devices) ++count[device.node];
  std::vector<std::uint32_t> made;
  for (const auto& [node, devices] : count) made.push_back(devices);
  return made;
}

std::string name_of_point(const ClusterRow& row) {
  return fmt::format("{}, {} a micro-batch", row.as().text, row.point.samples);
}

/// The best that were simulated, the fastest first, then why others have no time.
std::vector<Candidate> candidates_of(const ClusterAnswer& answer) {
  std::vector<const ClusterRow*> simulated;
  for (const ClusterRow& row : answer.rows) {
    if (row.outcome) simulated.push_back(&row);
  }
  std::ranges::stable_sort(simulated, {}, [](const ClusterRow* row) {
    return std::pair(!row->outcome->makespan, row->outcome->makespan.value_or(Seconds{}));
  });
  if (simulated.size() > listed_points) simulated.resize(listed_points);
  std::vector<Candidate> made;
  for (const ClusterRow* row : simulated) {
    const ClusterOutcome& outcome = *row->outcome;
    std::string reason = outcome.reason;
    if (outcome.smallest) reason = fmt::format("needs {} B", outcome.smallest->count);
    made.push_back({name_of_point(*row), outcome.makespan, outcome.makespan ? "" : std::move(reason),
                    answer.best && row == &answer.rows[*answer.best]});
  }
  return made;
}

std::string summary_of(const ClusterAnswer& answer, std::uint32_t devices) {
  const ClusterRow& best = answer.rows[*answer.best];
  std::string text = fmt::format("{} of {} points: {} do not fit by the bound",
                                 answer.is_proven ? "proven best" : "best", answer.points, answer.too_large);
  if (answer.refused > 0) text += fmt::format(", {} cannot be", answer.refused);
  text += fmt::format(", {} simulated", answer.simulated);
  if (answer.is_stopped) text += "; stopped before its end";
  if (!answer.is_proven) text += fmt::format("; no other takes less than {}", format_seconds(answer.bound));
  if (best.point.planner == 0 && best.point.devices() < devices)
    text += fmt::format("; uses {} of {} devices", best.point.devices(), devices);
  return text;
}

/// Operations of a micro-batch at the peak of the fastest device, of ops that take no less.
Seconds seconds_at_peak(const Problem& problem) {
  PartsOfOps parts(problem);
  const DeviceClasses kinds = device_classes(problem.platform, problem.platform.devices.size());
  Seconds sum;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    const OpId op = id_at<OpId>(o);
    if (problem.graph[op].phase == Phase::update) continue;
    const auto on = [&](DeviceId device) {
      return std::min(parts.of(op, 0, device).ideal, duration_on(problem, op, device, Saving::nothing));
    };
    sum += on(*std::ranges::min_element(kinds.one, {}, on));
  }
  return sum;
}

/// Updates are launched together, so that each takes its share of what all parameters of the whole model take.
void share_launches_as(const Graph& whole, Graph& few) {
  const auto update = std::ranges::find(whole.ops, Phase::update, &Op::phase);
  for (Op& op : few.ops) {
    if (op.phase != Phase::update || update == whole.ops.end()) continue;
    op.launches = update->launches;
    op.workspace = update->workspace;
  }
}

/// Where no point has failed for want of memory: why the first that was simulated has.
std::optional<std::string> other_reason(const ClusterAnswer& answer) {
  if (answer.too_large > 0 || answer.is_least_simulated) return std::nullopt;
  for (const ClusterRow& row : answer.rows) {
    if (!row.outcome) continue;
    if (row.outcome->lacks_host_memory) return std::nullopt;
    return fmt::format("{} points; {}: {}", answer.points, name_of_point(row), row.outcome->reason);
  }
  return std::nullopt;
}

/// Why nothing fits, by what the least consists of.
Infeasible none_of(const ClusterAnswer& answer) {
  if (answer.rows.empty() && answer.too_large == 0) return {answer.refused_because, std::nullopt};
  if (std::optional<std::string> why = other_reason(answer)) return {*std::move(why), std::nullopt};
  const MemoryBound& parts = answer.least_parts;
  std::string why = fmt::format("{} points, {} too large by the bound and {} by simulation", answer.points,
                                answer.too_large, answer.simulated);
  why += fmt::format(
      "; the least bound is {} of parameters, {} of gradients, {} of states, {} of activations "
      "and {} of exchange buffers",
      format_bytes(parts.parameters), format_bytes(parts.gradients), format_bytes(parts.states),
      format_bytes(parts.activations), format_bytes(parts.exchanged));
  const auto lacks_host = std::ranges::find_if(
      answer.rows, [](const ClusterRow& row) { return row.outcome && row.outcome->lacks_host_memory; });
  if (lacks_host != answer.rows.end()) {
    why += fmt::format("; {}: {}", name_of_point(*lacks_host), lacks_host->outcome->reason);
  }
  if (!answer.is_least_simulated) return {why, std::nullopt};
  return {why, answer.least, answer.is_least_proven};
}

/// Which plan needs the least, and what of it does.
std::string least_plan(ClusterProblems& problems, const ClusterAnswer& found) {
  const std::optional<LeastOfCluster> least = least_of_cluster(problems, found);
  if (!least) return "";
  return fmt::format(
      "; of the plans {} needs the least: at its peak {} of parameters, {} of gradients, {} of states, {} of "
      "activations and exchange buffers, and {} of workspaces",
      name_of_point(least->row), format_bytes(least->parameters), format_bytes(least->gradients),
      format_bytes(least->states), format_bytes(least->activations), format_bytes(least->workspaces));
}

ClusterAnswer searched_space(ClusterProblems& problems, const ClusterOptions& options, ClusterWatch watch) {
  ClusterQuestion question = problems.question();
  question.goes_on = std::move(watch);
  return cluster_search(question, options);
}

}  // namespace

bool asks_cluster(const Question& question) {
  const std::vector<Pass>& passes = question.strategy.passes;
  return passes.size() == 1 && passes.front().strategy == &cluster_strategy;
}

ClusterProblems::ClusterProblems(const Question& question, const Trace& trace, const Platform& platform)
    : question_(question), trace_(trace), platform_(platform) {
  refuse_unlike_memories(platform);
  const std::optional<std::uint32_t> samples = samples_of(question.trace);
  extent_.devices = static_cast<std::uint32_t>(platform.devices.size());
  extent_.usual_devices = extent_.devices;
  const std::vector<std::uint32_t> in_nodes = devices_in_nodes(platform);
  extent_.in_node = std::ranges::min(in_nodes);
  extent_.in_largest_node = std::ranges::max(in_nodes);
  extent_.has_alike_devices = device_classes(platform, extent_.devices).one.size() == 1;
  if (!extent_.has_alike_devices) of_first_kind_ = with_devices_as_the_first(platform);
  extent_.has_sizes = samples.has_value();
  extent_.given_samples = samples.value_or(1);
  extent_.layers = layers_of(question.trace).value_or(0);
  extent_.positions = positions_of(question.trace).value_or(0);
  extent_.batch = question.micro_batches * extent_.given_samples;
  extent_.has_operators = std::holds_alternative<Graph>(trace.model);
  Question plainly = question;
  plainly.strategy = plain();
  BudgetedProblem given = budgeted_problem_of(plainly, trace, platform);
  budget_ = given.budget ? given.budget : capacity_of(platform);
  const auto is_update = [](const Op& op) { return op.phase == Phase::update; };
  extent_.has_updates = std::ranges::any_of(given.problem.graph.ops, is_update);
  const std::variant<RankCosts, std::string> costs = rank_costs(given.problem);
  given.problem.platform = costed();
  bases_.emplace(std::pair(extent_.given_samples, Layers::all), std::move(given.problem));
  if (const RankCosts* known = std::get_if<RankCosts>(&costs)) {
    extent_.model_stages = known->stages.size();
    if (repeats_layers(*known)) layers_ = Layers::few;
  }
}

/// Whether the model with few layers tells what all of them cost, stage by stage.
bool ClusterProblems::repeats_layers(const RankCosts& whole) {
  if (!extent_.has_operators || extent_.layers <= few_layers) return false;
  const std::variant<RankCosts, std::string> few = rank_costs(base(extent_.given_samples, Layers::few));
  const RankCosts* known = std::get_if<RankCosts>(&few);
  if (known == nullptr) return false;
  const std::optional<RankCosts> repeated = with_layers(*known, extent_.layers);
  return repeated && cost_the_same(*repeated, whole);
}

void ClusterProblems::count_as(const ClusterExtent& other) {
  extent_.in_node = other.in_node;
  extent_.in_largest_node = other.in_largest_node;
  extent_.usual_devices = other.usual_devices;
}

ClusterQuestion ClusterProblems::question() {
  return {.platform = costed(),
          .extent = extent_,
          .budget = budget_,
          .rank_costs = [this](std::uint32_t samples, const ComposedPoint& as) { return costs_of_rank(samples, as); },
          .stage_problem = [this](std::uint32_t samples, std::uint32_t micro_batches,
                                  const ComposedPoint& as) { return stage_problem(samples, micro_batches, as); },
          .whole_bound = [this](std::uint32_t samples, const ComposedPoint& as,
                                bool splits) { return whole_bound(samples, as, splits); },
          .outcome = [this](const ClusterPoint& point, const ComposedPoint& as) { return outcome(point, as); },
          .alone = [this](const ClusterPoint& point, const ComposedPoint& as) { return alone(point, as); }};
}

Question ClusterProblems::of(const ClusterPoint& point, const ComposedPoint& as) const {
  Question made = question_;
  made.trace = reference(point.samples, Layers::all);
  made.micro_batches = extent_.micro_batches(point) * point.replicas;
  made.strategy = {as.text, as.passes};
  if (budget_) made.memory = *budget_;
  return made;
}

std::string ClusterProblems::reference(std::uint32_t samples, Layers layers) const {
  const std::string sized = samples == extent_.given_samples ? question_.trace : with_samples(question_.trace, samples);
  return layers == Layers::all ? sized : with_layers(sized, few_layers);
}

const Problem& ClusterProblems::base(std::uint32_t samples, Layers layers) {
  const auto found = bases_.find({samples, layers});
  if (found != bases_.end()) return found->second;
  Question plainly = question_;
  plainly.trace = reference(samples, layers);
  plainly.strategy = plain();
  ProblemOutcome made = problem_of(plainly, load_model(plainly.trace), costed());
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  Problem& problem = bases_.emplace(std::pair(samples, layers), std::get<Problem>(std::move(made))).first->second;
  if (layers == Layers::few) share_launches_as(bases_.at({extent_.given_samples, Layers::all}).graph, problem.graph);
  return problem;
}

std::variant<Problem, std::string> ClusterProblems::rank_problem(std::uint32_t samples, const ComposedPoint& as,
                                                                 Layers layers) {
  Problem problem = base(samples, layers);
  problem.micro_batches = replicas_of(as.passes, platform_.devices.size());  // one of each rank
  try {
    return transformed(std::move(problem), as.passes);
  } catch (const InputError& error) {  // ranks cannot share it out so: others can
    return error.what();
  }
}

std::variant<RankCosts, std::string> ClusterProblems::costs_of_rank(std::uint32_t samples, const ComposedPoint& as) {
  const auto costs_with = [&](Layers layers) -> std::variant<RankCosts, std::string> {
    std::variant<Problem, std::string> problem = rank_problem(samples, as, layers);
    if (std::string* why = std::get_if<std::string>(&problem)) return std::move(*why);
    return rank_costs(std::get<Problem>(std::move(problem)));
  };
  std::variant<RankCosts, std::string> costs = costs_with(layers_);
  if (layers_ == Layers::all || std::holds_alternative<std::string>(costs)) return costs;
  std::optional<RankCosts> repeated = with_layers(std::get<RankCosts>(costs), extent_.layers);
  return repeated ? *std::move(repeated) : costs_with(Layers::all);
}

/// The whole graph's problem where the trace is one, else that of a chain.
Problem ClusterProblems::planned_by_stages(std::uint32_t samples, std::uint32_t micro_batches, const ComposedPoint& as,
                                           Layers layers) {
  if (extent_.has_operators) {
    Problem problem = base(samples, layers);
    problem.micro_batches = micro_batches;
    return transformed(std::move(problem), as.passes);
  }
  Question asked = question_;
  asked.trace = reference(samples, layers);
  asked.micro_batches = micro_batches;
  asked.strategy = {as.text, as.passes};
  ProblemOutcome made = problem_of(asked, load_model(asked.trace), platform_);
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  return std::get<Problem>(std::move(made));
}

std::optional<Problem> ClusterProblems::stage_problem(std::uint32_t samples, std::uint32_t micro_batches,
                                                      const ComposedPoint& as) {
  try {
    Problem problem = planned_by_stages(samples, micro_batches, as, layers_);
    if (layers_ == Layers::few) {
      std::optional<RepeatedLayers> made = with_layers(*problem.chain, extent_.layers);
      if (made) {
        problem.chain = std::move(made->chain);
      } else {
        problem = planned_by_stages(samples, micro_batches, as, Layers::all);
      }
    }
    problem.index = chain_graph(*problem.chain, Optimizer::none, backward_for(as.passes));
    problem.graph = std::move(problem.index->graph);
    problem.index->graph = {};
    problem.of_ops.reset();
    return problem;
  } catch (const InputError&) {  // a pass refuses this point: its simulation says why
    return std::nullopt;
  }
}

std::variant<WholeBound, std::string> ClusterProblems::whole_bound(std::uint32_t samples, const ComposedPoint& as,
                                                                   bool splits) {
  Problem problem = base(samples, Layers::all);
  problem.platform = platform_;
  problem.micro_batches = extent_.batch / samples;
  try {
    if (!as.passes.empty()) problem = transformed(std::move(problem), as.passes);
  } catch (const InputError& error) {  // no op is what the transform is for
    return error.what();
  }
  const auto devices = static_cast<std::int64_t>(platform_.devices.size());
  const auto share = [&](TensorKind kind) { return Bytes{bytes_of_kind(problem.graph, kind).count / devices}; };
  WholeBound bound{.time = {},
                   .memory = {.parameters = share(TensorKind::parameter),
                              .gradients = share(TensorKind::parameter_gradient),
                              .states = share(TensorKind::optimizer_state),
                              .activations = {}}};
  if (splits) {
    bound.time = problem.micro_batches / static_cast<double>(devices) * seconds_at_peak(problem);
    return bound;
  }
  const LowerBounds of_ops = lower_bounds(problem, platform_.devices.size());
  bound.time = of_ops.time();
  const std::variant<Problem, std::string> chain = as_chain(problem, Backward::whole);
  if (const Problem* of_stages = std::get_if<Problem>(&chain)) {
    bound.time = std::min(bound.time, lower_bounds(*of_stages, platform_.devices.size()).time());
  }
  return bound;
}

/// Throws InputError where a strategy refuses the point.
Problem ClusterProblems::whole_problem(const ClusterPoint& point, const ComposedPoint& as) {
  const Question asked = of(point, as);
  if (!std::holds_alternative<Graph>(trace_.model)) {
    return std::get<Problem>(problem_of(asked, load_model(asked.trace), platform_));
  }
  Problem problem = base(point.samples, Layers::all);
  problem.platform = platform_;
  problem.micro_batches = asked.micro_batches;
  return transformed(std::move(problem), as.passes);
}

std::optional<Seconds> ClusterProblems::alone(const ClusterPoint& point, const ComposedPoint& as) {
  if (have_issuing_hosts(platform_)) return std::nullopt;
  try {
    const Problem problem = whole_problem(point, as);
    const std::optional<Bytes> unlimited;
    const PartsOutcome planned = std::move(plan_parts(problem, as.passes, std::span(&unlimited, 1)).front());
    const PlannedParts* made = std::get_if<PlannedParts>(&planned);
    if (made == nullptr) return std::nullopt;
    Schedule schedule = plan_of(problem, *made, unlimited).schedule;
    const Timeline timeline =
        simulate_event(without_contention(std::move(schedule), problem.platform), problem.platform);
    return is_below(timeline.makespan, made->makespan) ? timeline.makespan : made->makespan;
  } catch (const InputError&) {  // a strategy refuses this point: its simulation says why
    return std::nullopt;
  }
}

ClusterOutcome ClusterProblems::outcome(const ClusterPoint& point, const ComposedPoint& as) {
  try {
    const Problem problem = whole_problem(point, as);
    const PartsOutcome planned = std::move(plan_parts(problem, as.passes, std::span(&budget_, 1)).front());
    if (const Infeasible* none = std::get_if<Infeasible>(&planned)) {
      return {.makespan = {}, .peak = {}, .reason = none->reason, .smallest = none->smallest};
    }
    const PlannedParts& made = std::get<PlannedParts>(planned);
    if (point.offload > 0 || point.updates > 0) {
      std::optional<std::string> why = beyond_host_or_disk(problem, plan_of(problem, made, budget_).schedule);
      if (why) return {.makespan = {}, .peak = {}, .reason = *std::move(why), .lacks_host_memory = true};
    }
    return {.makespan = made.makespan, .peak = made.peak};
  } catch (const InputError& error) {  // a strategy refuses this point
    return {.makespan = {}, .peak = {}, .reason = error.what()};
  }
}

AnsweredQuestion answered_by_best(const Question& question, const ClusterProblems& problems, const ClusterAnswer& found,
                                  double searched_s) {
  const ClusterRow& best = found.rows[*found.best];
  Question chosen = problems.of(best.point, best.as());
  BudgetedProblem made = budgeted_problem_of(chosen, load_model(chosen.trace), problems.platform());
  Answer answer = std::move(plimsoll::answer(chosen, made.problem, std::span(&made.budget, 1), searched_s).front());
  answer.gap = found.gap();
  answer.note = summary_of(found, static_cast<std::uint32_t>(problems.platform().devices.size()));
  answer.candidates = candidates_of(found);
  if (const ClusterFramework* framework = cluster_framework(options_in(question).framework)) {
    answer.configuration = {std::string(framework->name),
                            framework_configuration(framework->name, problems.extent(), best.point, best.sequence)};
  }
  return {std::move(chosen), std::move(made.problem), std::move(answer)};
}

void judge_cluster(const Question& question, const Trace& trace, const Platform& platform) {
  ClusterProblems problems(question, trace, platform);
  cluster_bounds(problems.question(), options_in(question));
}

AnsweredQuestion answered_by_cluster(const Question& question, const Trace& trace, const Platform& platform,
                                     ClusterWatch watch) {
  const auto started = std::chrono::steady_clock::now();
  ClusterProblems problems(question, trace, platform);
  const ClusterAnswer found = searched_space(problems, options_in(question), std::move(watch));
  const std::chrono::duration<double> searched = std::chrono::steady_clock::now() - started;
  if (!found.best) {
    Question plainly = question;
    plainly.strategy = plain();
    BudgetedProblem given = budgeted_problem_of(plainly, trace, platform);
    const Infeasible none = none_of(found);
    Answer answer;
    answer.budget = given.budget ? given.budget : capacity_of(platform);
    answer.reason = none.reason + least_plan(problems, found);
    answer.smallest_feasible = none.smallest;
    answer.smallest_is_proven = none.smallest_is_proven;
    answer.solve_s = searched.count();
    answer.candidates = candidates_of(found);
    return {question, std::move(given.problem), std::move(answer)};
  }
  AnsweredQuestion made = answered_by_best(question, problems, found, searched.count());
  if (options_in(question).prices && !found.is_stopped)
    made.answer.prices = cluster_prices(question, trace, platform, problems, found);
  return made;
}

}  // namespace plimsoll
