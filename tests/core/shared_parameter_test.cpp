// A parameter that parts on two devices train: partial gradients are summed at its owner, and its new value goes back.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Stage 0 on gpu0, stage 1 and the loss on gpu1; both stages have the parameter w.
struct Tied {
  Problem problem;
  Partition partition;
  std::vector<Tape> tapes;
};

Tied tied(const ProblemOptions& options) {
  Chain chain = even_chain(2);
  chain.parameters = {{"w", Bytes{100}}};
  chain.stages[0].parameters = chain.stages[1].parameters = {0};
  Tied made{problem_of(chain, gpus({.count = 2, .to_peers = BytesPerSecond{100}}), options), {}, {}};
  made.partition = one_forward_one_backward(made.problem, {0, 1});
  const Graph& graph = made.problem.graph;
  const ChainGraph& index = *made.problem.index;
  const TensorId x1 = graph[index.forward[0]].outputs.front(), g1 = graph[index.backward[1]].outputs.front();
  Tape first, second;
  first.actions = {run(index.forward[0]), on_tensor(ActionKind::send, x1, PartId{1}), cut_before(PieceName::backward),
                   on_tensor(ActionKind::receive, g1), run(index.backward[0])};
  second.actions = {on_tensor(ActionKind::receive, x1),
                    run(index.forward[1]),
                    run(index.forward[2]),
                    run(index.backward[2]),
                    run(index.backward[1]),
                    on_tensor(ActionKind::send, g1, PartId{0})};
  made.tapes = {with_drops(graph, first), with_drops(graph, second)};
  return made;
}

Schedule lowered(const Tied& tied) {
  std::variant<Schedule, std::string> made = lower(tied.problem, tied.partition, tied.tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  return std::move(std::get<Schedule>(made));
}

TEST_CASE("two devices that share a parameter sum its gradient at the first, which updates both copies", "[lowering]") {
  const auto optimizer = GENERATE(Optimizer::none, Optimizer::adam);
  const auto gradients = GENERATE(Gradients::fresh, Gradients::existing);
  const auto micro_batches = GENERATE(1u, 3u);
  const Tied made = tied({.micro_batches = micro_batches, .optimizer = optimizer, .gradients = gradients});
  const Schedule schedule = lowered(made);
  const std::vector<Violation> found = check(schedule, made.problem.graph, made.problem.platform);
  INFO((found.empty() ? std::string() : found[0].what));
  CHECK(found.empty());
  const Timeline timeline = simulate_event(schedule, made.problem.platform);
  CHECK(recount(schedule, timeline, made.problem.platform)[0] == timeline.peaks[0].bytes);
  const auto sent = [&](TensorKind kind) {
    return std::ranges::count_if(schedule.steps, [&](const Step& step) {
      return step.work.is_transfer() &&
             made.problem.graph[schedule[schedule.buffers_in(step.reads)[0]].tensor].kind == kind;
    });
  };
  CHECK(sent(TensorKind::parameter_gradient) == 1);
  CHECK(sent(TensorKind::parameter) == (optimizer == Optimizer::adam ? 1 : 0));
  // Adam's two states are with the owner only.
  const auto states = std::ranges::count_if(schedule.resident, [&](BufferId b) {
    return made.problem.graph[schedule[b].tensor].kind == TensorKind::optimizer_state;
  });
  CHECK(states == (optimizer == Optimizer::adam ? 2 : 0));
}

TEST_CASE("where each of two devices updates the parameter that they share, both have states and the sum",
          "[lowering]") {
  const auto gradients = GENERATE(Gradients::fresh, Gradients::existing);
  const auto micro_batches = GENERATE(1u, 3u);
  Tied made = tied({.micro_batches = micro_batches, .optimizer = Optimizer::adam, .gradients = gradients});
  made.partition.each_updates_shared = true;
  const Graph& graph = made.problem.graph;
  const Schedule schedule = lowered(made);
  const std::vector<Violation> found = check(schedule, graph, made.problem.platform);
  INFO((found.empty() ? std::string() : found[0].what));
  CHECK(found.empty());
  const Timeline timeline = simulate_event(schedule, made.problem.platform);
  CHECK(recount(schedule, timeline, made.problem.platform)[1] == timeline.peaks[1].bytes);
  // Adam's two states of 100 bytes on each device, and an update there; nothing is handed out.
  std::vector<int> states(made.problem.platform.memories.size());
  for (const BufferId b : schedule.resident) {
    if (graph[schedule[b].tensor].kind == TensorKind::optimizer_state) ++states[schedule[b].memory.index];
  }
  CHECK(std::ranges::count(states, 2) == 2);
  CHECK(std::ranges::count(schedule.steps, StepKind::update, &Step::kind) == 2);
  CHECK(std::ranges::none_of(schedule.steps, [&](const Step& step) {
    return step.work.is_transfer() &&
           graph[schedule[schedule.buffers_in(step.reads)[0]].tensor].kind == TensorKind::parameter;
  }));
}

TEST_CASE("a partial gradient that a tape has moved to the host is refused with the reason", "[lowering]") {
  Tied made = tied({.optimizer = Optimizer::adam});
  made.problem.platform = gpus({.count = 2, .to_host = BytesPerSecond{100}, .to_peers = BytesPerSecond{100}});
  const Graph& graph = made.problem.graph;
  TensorId gradient;
  for (const TensorId t : graph[made.problem.index->backward[1]].outputs) {
    if (graph[t].kind == TensorKind::parameter_gradient) gradient = t;
  }
  const auto device = GENERATE(0u, 1u);
  made.tapes[device].actions.push_back(along(way::device_to_host, ActionKind::copy, gradient));
  made.tapes[device].actions.push_back(on_tensor(ActionKind::drop, gradient));
  const std::variant<Schedule, std::string> refused = lower(made.problem, made.partition, made.tapes);
  REQUIRE(std::holds_alternative<std::string>(refused));
  CHECK(std::get<std::string>(refused) ==
        "'gradient of w' is not on 'gpu" + std::to_string(device) +
            "' when the parts on several devices that share its parameter sum it there: updates on the host need a "
            "parameter that one device trains");
}

TEST_CASE("one micro-batch of a parameter on two devices takes its ops and what is sent, one after the other",
          "[lowering]") {
  const Tied made = tied({.optimizer = Optimizer::adam});
  // Forwards 2 s, backwards 4 s; x1 and its gradient of 10 bytes, w and its gradient of 100 at 100 B/s. The gradient of
  // w leaves gpu1 right behind that of x1, on the same stream, while gpu0 runs its backward of 2 s.
  CHECK(simulate_event(lowered(made), made.problem.platform).makespan.value == Approx(2 + 4 + 0.1 + 0.1 + 1));
}

TEST_CASE("a sum of two gradients moves three of its size: it reads two and writes one", "[lowering]") {
  Tied made = tied({});
  made.problem.graph.source.device = "as measured";
  for (Device& device : made.problem.platform.devices) {
    device.takes_trace_times = false;
    device.model = "as measured";
    device.memory_bandwidth = BytesPerSecond{100};
  }
  const Schedule schedule = lowered(made);
  const std::vector<Violation> found = check(schedule, made.problem.graph, made.problem.platform);
  INFO((found.empty() ? std::string() : found[0].what));
  CHECK(found.empty());
  const auto is_sum = [](const Step& step) {
    return step.op == no_op && !step.work.is_transfer() && step.writes.count == 1;
  };
  const auto sum = std::ranges::find_if(schedule.steps, is_sum);
  REQUIRE(sum != schedule.steps.end());
  CHECK(sum->work.seconds == Seconds{3});
}

TEST_CASE("check() misses a partial gradient that is not summed, and sees one that is summed twice", "[check]") {
  const Tied made = tied({.optimizer = Optimizer::none});
  Schedule schedule = lowered(made);
  const auto sum = std::ranges::find_if(schedule.steps, [](const Step& step) {
    return step.op == no_op && !step.work.is_transfer() && step.writes.count == 1;
  });
  REQUIRE(sum != schedule.steps.end());
  const Step whole = *sum;
  sum->reads.count = sum->writes.count = 0;
  std::vector<Violation> found = check(schedule, made.problem.graph, made.problem.platform);
  REQUIRE(!found.empty());
  CHECK(found.front().rule == Rule::incomplete);
  *sum = whole;
  Step again = whole;
  sum->frees = {};
  schedule.steps.insert(std::next(sum), again);
  found = check(schedule, made.problem.graph, made.problem.platform);
  REQUIRE(!found.empty());
  CHECK(found.front().rule == Rule::repeated);
}

}  // namespace
}  // namespace plimsoll
