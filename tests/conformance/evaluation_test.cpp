// Evaluations between iterations: what they take by hand, and as a graph of the forward alone takes it; whom they leave
// as they are, who refuses them, and schedules that do them wrongly.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/lower/evaluation.h"
#include "sim/memory/replay.h"
#include "sim/memory/step_orders.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Three stages with 8 bytes of parameters each; the forward of the second one needs 100 B where it keeps nothing.
Chain evaluated_chain() {
  Chain chain = even_chain(3);
  for (std::uint32_t s = 0; s < 3; ++s) {
    chain.stages[s].parameters = {s};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{8}});
  }
  chain.stages[1].forward_nograd_workspace = Bytes{100};
  chain.stages[1].forward_nograd = Seconds{0.5};
  return chain;
}

Plan plan_with(const Problem& problem, const std::string& spec, std::optional<Bytes> budget = std::nullopt) {
  PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  INFO(spec);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(std::move(outcome));
}

/// What the judge, both engines and the planner say of it.
void hold_to(const Problem& problem, const Plan& made) {
  const std::vector<Violation> violations = check(made.schedule, problem.graph, problem.platform);
  if (!violations.empty()) FAIL_CHECK(violations[0].what);
  const Timeline event = simulate_event(made.schedule, problem.platform);
  CHECK(event.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  Bytes peak;
  for (const Device& device : problem.platform.devices) peak = std::max(peak, event.peaks[device.memory.index].bytes);
  CHECK(peak == made.peak);
  const Timeline simgrid = simulate_simgrid(made.schedule, problem.platform);
  CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-9));
  CHECK(simgrid.peaks == event.peaks);
}

Problem without_evaluation(Problem problem) {
  problem.evaluation.reset();
  return problem;
}

/// The forward as it runs without gradients, and nothing else; its last op holds the batch.
Graph forward_alone(Graph graph) {
  std::erase_if(graph.ops, [](const Op& op) { return op.phase != Phase::forward; });
  std::vector<TensorId> read;
  for (const Op& op : graph.ops) read.insert(read.end(), op.inputs.begin(), op.inputs.end());
  for (Op& op : graph.ops) {
    std::erase_if(op.outputs, [&](TensorId t) {
      return std::ranges::find(op.saved, t) != op.saved.end() && std::ranges::find(read, t) == read.end();
    });
    op.saved.clear();
    op.workspace = op.nograd_workspace.value_or(op.workspace);
    op.duration = op.nograd_duration ? op.nograd_duration : op.duration;
    op.nograd_workspace.reset();
    op.nograd_duration.reset();
    op.load = {};
  }
  std::vector<TensorId>& last = graph.ops.back().inputs;
  for (const TensorId t : read) {
    if (graph[t].kind == TensorKind::input && std::ranges::find(last, t) == last.end()) last.push_back(t);
  }
  graph.colocate.clear();
  return graph;
}

Bytes at_start(const Schedule& schedule, MemoryId memory) {
  Bytes bytes;
  for (const BufferId b : schedule.resident) {
    if (schedule[b].memory == memory) bytes += schedule[b].bytes;
  }
  return bytes;
}

/// Of requests that leave nothing.
Bytes most_at_once(const AllocationOrder& order) {
  std::vector<Bytes> sizes;
  Bytes now, most;
  for (const std::int64_t n : order) {
    if (n > 0) sizes.push_back(Bytes{n});
    now = n > 0 ? now + Bytes{n} : now - std::exchange(sizes[static_cast<std::size_t>(-n) - 1], Bytes{});
    most = std::max(most, now);
  }
  CHECK(now == Bytes{0});
  return most;
}

}  // namespace

// The batch of 10 B, two outputs of 10 B and the workspace beside parameters and Adam's states. Forwards take 2.5 s.
TEST_CASE("an evaluation by hand", "[evaluation]") {
  ProblemOptions options{.optimizer = Optimizer::adam, .evaluation = Evaluation{.every = 4, .batches = 2}};
  for (const char* spec : {"store_all", "rotor", "chen_sqrt", "full_recompute"}) {
    const Problem problem = problem_of(evaluated_chain(), gpus({}), options);
    const Plan before = plan_with(without_evaluation(problem), spec), after = plan_with(problem, spec);
    CHECK(after.makespan.value - before.makespan.value == Approx(2.5 * 2 / 4));
    CHECK(after.peak == Bytes{24 + 48 + 130});
    CHECK(before.peak <= after.peak);
    hold_to(problem, after);
    const PlanOutcome less = plan(problem, parse_spec(spec, "test"), after.peak - Bytes{1});
    REQUIRE(std::holds_alternative<Infeasible>(less));
    CHECK(std::get<Infeasible>(less).smallest == after.peak);
    hold_to(problem, plan_with(problem, spec, after.peak));
  }
  options.evaluation->size = 2;
  CHECK(plan_with(problem_of(evaluated_chain(), gpus({}), options), "store_all").peak == Bytes{24 + 48 + 260});
  options.gradients = Gradients::existing;
  options.micro_batches = 3;
  const Problem existing = problem_of(evaluated_chain(), gpus({}), options);
  const Plan made = plan_with(existing, "store_all");
  CHECK(made.peak == Bytes{24 + 48 + 24 + 260});
  hold_to(existing, made);
}

TEST_CASE("states that are on a host are not there while it evaluates, replicas evaluate at once", "[evaluation]") {
  const ProblemOptions options{.optimizer = Optimizer::adam, .evaluation = Evaluation{}};
  const Gpus machine{.count = 2, .to_host = {16}, .to_peers = {1000}, .adam = BytesPerSecond{4}};
  const Problem problem = problem_of(evaluated_chain(), gpus(machine), options);
  const Plan offloaded = plan_with(problem, "zero_offload");
  CHECK(offloaded.peak == Bytes{24 + 130});
  hold_to(problem, offloaded);
  ProblemOptions several = options;
  several.micro_batches = 2;
  const Problem replicated = problem_of(evaluated_chain(), gpus(machine), several);
  for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem shared = transformed(replicated, passes);
    const Plan with = plan_with(shared, spec), without = plan_with(without_evaluation(shared), spec);
    INFO(spec);
    CHECK(with.makespan - without.makespan >= Seconds{2.5 - 1e-9});  // and what is gathered for it
    CHECK(with.peak >= Bytes{130});
    hold_to(shared, with);
  }
}

TEST_CASE("a gap holds for schedules that all evaluate", "[evaluation]") {
  const ProblemOptions options{.evaluation = Evaluation{.every = 1, .batches = 4}};
  const Problem problem = problem_of(evaluated_chain(), gpus({}), options);
  const Plan all = plan_with(without_evaluation(problem), "revolve");
  std::size_t with_gap = 0;
  for (Bytes budget = all.peak; budget > Bytes{140}; budget -= Bytes{5}) {
    const PlanOutcome bare = plan(without_evaluation(problem), parse_spec("rotor", "test"), budget);
    const Plan* before = std::get_if<Plan>(&bare);
    if (before == nullptr || budget < Bytes{154}) continue;
    const Plan after = plan_with(problem, "rotor", budget);
    REQUIRE(before->gap.has_value() == after.gap.has_value());
    if (!before->gap) continue;
    const double least = before->makespan.value / (1 + *before->gap);
    CHECK(*after.gap == Approx(after.makespan.value / (least + 10) - 1).margin(1e-12));
    ++with_gap;
  }
  CHECK(with_gap > 0);
}

TEST_CASE("an evaluation takes what a graph of the forward alone takes", "[evaluation]") {
  std::size_t at_peak = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    const bool is_graph = seed % 2 == 0;
    const double size = is_graph ? 1 : static_cast<double>(1 + seed % 4);  // all of a chain grows with samples
    const Platform platform = gpus({.to_host = BytesPerSecond{8}, .adam = BytesPerSecond{8}});
    const ProblemOptions options{
        .micro_batches = static_cast<std::uint32_t>(1 + seed % 3),
        .optimizer = seed % 4 < 2 ? Optimizer::none : Optimizer::adam,
        .evaluation = Evaluation{.every = 3, .batches = static_cast<std::uint32_t>(seed % 5 + 1), .size = size},
        .gradients = seed % 7 == 0 ? Gradients::existing : Gradients::fresh};
    Chain chain = random_small_chain(seed, 4);
    for (Stage& stage : chain.stages)
      stage.forward_nograd_workspace = static_cast<std::int64_t>(seed % 6) * stage.forward_nograd_workspace;
    const Problem problem =
        is_graph ? problem_of(random_graph(seed, 5), platform, options) : problem_of(chain, platform, options);
    const Problem alone = problem_of(forward_alone(problem.graph), platform);
    const bool has_updates =
        std::ranges::any_of(problem.graph.ops, [](const Op& op) { return op.phase == Phase::update; });
    const Plan forward = plan_with(alone, "store_all");
    const Bytes taken = forward.peak - at_start(forward.schedule, platform.devices[0].memory);
    for (const char* spec :
         {"store_all", is_graph ? "greedy_recompute" : "chen_sqrt", "offload_greedy", "zero_offload"}) {
      INFO(spec);
      if (!has_updates && std::string(spec) == "zero_offload") continue;
      const Plan before = plan_with(without_evaluation(problem), spec), after = plan_with(problem, spec);
      const Bytes between = at_start(before.schedule, platform.devices[0].memory);
      CHECK(after.peak == std::max(before.peak, between + static_cast<std::int64_t>(size) * taken));
      at_peak += after.peak > before.peak ? 1 : 0;
      const double share = forward.makespan.value * size * options.evaluation->batches / 3;
      CHECK(after.makespan.value == Approx(before.makespan.value + share).epsilon(1e-9));
      hold_to(problem, after);
      const Schedule read = parse_schedule(schedule_text(after.schedule, ""), "file");
      CHECK(read.evaluation == after.schedule.evaluation);
      CHECK(check(read, problem.graph, problem.platform).empty());
    }
    // Request by request, and no more than that at once.
    const Plan made = plan_with(problem, "store_all");
    const StepOrders orders = step_orders(problem, made.schedule);
    REQUIRE(orders.evaluation);
    CHECK(most_at_once(*orders.evaluation) == static_cast<std::int64_t>(size) * taken);
    const Timeline timeline = simulate_event(made.schedule, platform);
    const MemoryId memory = platform.devices[0].memory;
    const Bytes live =
        peak_reserved(made.schedule, timeline, platform, usual(AllocatorKind::cuda), orders)[memory.index].live;
    CHECK(live.count == timeline.peaks[memory.index].bytes.count);
  }
  if (all_cases()) CHECK(at_peak > 20);
}

TEST_CASE("who spreads the network, or has parameters elsewhere, cannot evaluate between iterations", "[evaluation]") {
  const ProblemOptions options{.micro_batches = 2, .optimizer = Optimizer::adam, .evaluation = Evaluation{}};
  const Problem two = problem_of(
      evaluated_chain(), gpus({.count = 2, .to_host = {16}, .adam = BytesPerSecond{4}, .to_disk = {{8}}}), options);
  const auto refused = [&](const char* spec, const char* why) {
    INFO(spec);
    CHECK_THROWS_WITH(plan(two, parse_spec(spec, "test"), std::nullopt), Catch::Contains(why));
  };
  for (const char* spec : {"gpipe", "1f1b", "1f1b|rotor"}) refused(spec, "has only a part of the network");
  refused("demand_layering", "between iterations, when an evaluation reads it");
  refused("pipedream", "updates come within an iteration");
  Graph graph = random_graph(3, 4);
  std::erase_if(graph.ops, [](const Op& op) { return op.phase != Phase::forward; });
  const auto made = make_problem(graph, gpus({}), {.evaluation = Evaluation{}});
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK_THAT(std::get<std::string>(made), Catch::Contains("what an evaluation runs is not known"));
}

TEST_CASE("check finds evaluations that are not between iterations, or not of the whole forward", "[evaluation]") {
  const ProblemOptions options{
      .micro_batches = 4, .optimizer = Optimizer::adam, .evaluation = Evaluation{.every = 2, .size = 1.5}};
  const Problem problem = transformed(
      problem_of(evaluated_chain(), gpus({.count = 2, .to_host = {16}, .to_peers = {1000}, .adam = BytesPerSecond{4}}),
                 options),
      parse_spec("data_parallel", "test"));
  const Schedule right = plan_with(problem, "data_parallel|zero_offload").schedule;
  const auto violations = [&](const Schedule& schedule) {
    std::string text;
    for (const Violation& each : check(schedule, problem.graph, problem.platform)) text += each.what + "\n";
    return text;
  };
  CHECK(violations(right).empty());
  REQUIRE(right.steps[0].kind == StepKind::evaluation);
  Schedule wrong = right;
  wrong.evaluation.reset();  // the header does not say so
  CHECK(!violations(wrong).empty());
  wrong = right;
  wrong.evaluation->batches = 2;
  CHECK_THAT(violations(wrong), Catch::Contains("evaluates in"));
  wrong = right;
  wrong.steps[0].workspace -= Bytes{1};
  CHECK_THAT(violations(wrong), Catch::Contains("the model has"));
  wrong = right;
  --wrong.steps[0].reads.count;
  CHECK_THAT(violations(wrong), Catch::Contains("evaluates without the whole of 'w2'"));
  wrong = right;
  wrong.steps[0].micro_batch = 1;
  CHECK_THAT(violations(wrong), Catch::Contains("is of micro-batch 0"));
  wrong = right;
  wrong.steps.erase(wrong.steps.begin());
  for (Step& step : wrong.steps) step.waits = {};
  CHECK_THAT(violations(wrong), Catch::Contains("runs the forward and never evaluates"));
  wrong = right;
  std::swap(wrong.steps[0], wrong.steps[1]);
  for (Step& step : wrong.steps) step.waits = {};
  CHECK_THAT(violations(wrong), Catch::Contains("evaluates when the iteration has begun"));
  wrong = right;
  wrong.steps[1] = wrong.steps[0];
  CHECK_THAT(violations(wrong), Catch::Contains("evaluates a second time"));
}

TEST_CASE("whatever begins an iteration waits for the evaluation before it", "[evaluation]") {
  const ProblemOptions options{.optimizer = Optimizer::adam, .evaluation = Evaluation{}};
  const Problem problem = problem_of(evaluated_chain(), gpus({.to_host = {16}, .adam = BytesPerSecond{4}}), options);
  Schedule schedule = plan_with(without_evaluation(problem), "zero_offload").schedule;
  for (Step& step : schedule.steps) step.waits.count = 0;
  const Schedule made = std::get<Schedule>(with_evaluation(problem, schedule));
  REQUIRE(made.streams.size() > 2);
  std::vector<bool> has_begun(made.streams.size(), false);
  for (std::size_t s = 1; s < made.steps.size(); ++s) {
    const Step& step = made.steps[s];
    const bool is_first = !has_begun[step.stream.index];
    has_begun[step.stream.index] = true;
    CHECK(made.waits_of(step).size() == (is_first && step.stream != made.steps[0].stream ? 1 : 0));
    if (!is_first || step.stream == made.steps[0].stream) continue;
    Schedule wrong = made;  // a copy begins with the evaluation
    wrong.steps[s].waits.count = 0;
    std::string text;
    for (const Violation& each : check(wrong, problem.graph, problem.platform)) text += each.what + "\n";
    CHECK_THAT(text, Catch::Contains("begins the iteration and does not wait for the evaluation"));
  }
}

}  // namespace plimsoll
