#include <catch2/catch.hpp>
#include <string>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Three ops in a row, the last one on a second device, or wherever the tapes say.
Partition two_and_one() {
  Partition partition;
  partition.parts = {{.ops = {OpId{0}, OpId{1}}, .device = DeviceId{0}}, {.ops = {OpId{2}}, .device = DeviceId{1}}};
  partition.order = {{{PartId{0}}}, {{PartId{1}}}};
  return partition;
}

std::vector<Tape> tapes_of_two_and_one(const Graph& graph) {
  const TensorId sent = graph.ops[1].outputs[0];
  std::vector<Tape> tapes(2);
  tapes[0].actions = {run(OpId{0}), run(OpId{1}), on_tensor(ActionKind::send, sent, PartId{1})};
  tapes[1].actions = {on_tensor(ActionKind::receive, sent), run(OpId{2})};
  for (Tape& tape : tapes) tape = with_drops(graph, tape);
  return tapes;
}

std::vector<Violation> judged_two_and_one(const Graph& graph) {
  const Problem problem = problem_of(graph, gpus({.count = 2}));
  const auto schedule = std::get<Schedule>(lower(problem, two_and_one(), tapes_of_two_and_one(problem.graph)));
  return check(schedule, problem.graph, problem.platform);
}

TEST_CASE("ops that the trace keeps together compute in one place", "[check]") {
  Graph graph = row_of_ops(3);
  CHECK(judged_two_and_one(graph).empty());
  graph.colocate = {{OpId{0}, OpId{1}}};
  CHECK(judged_two_and_one(graph).empty());
  graph.colocate = {{OpId{0}, OpId{2}}};
  const std::vector<Violation> found = judged_two_and_one(graph);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rule == Rule::wrong_place);
  CHECK(found[0].what.find("computes elsewhere than step 0") != std::string::npos);
}

TEST_CASE("an op that is pinned to the host computes there, in the trace's time", "[check]") {
  Graph graph = row_of_ops(3);
  graph.ops[1].attributes.emplace_back("device", "host");
  graph.ops[1].duration = Seconds{7};
  const std::vector<Violation> on_device = judged_two_and_one(graph);
  REQUIRE(on_device.size() == 1);
  CHECK(on_device[0].rule == Rule::wrong_place);
  CHECK(on_device[0].what.find("pins to the host") != std::string::npos);

  const Problem problem = problem_of(graph, gpus({.count = 1}));
  const TensorId in = problem.graph.ops[1].inputs[0], out = problem.graph.ops[1].outputs[0];
  Tape tape;
  tape.actions = {run(OpId{0}),
                  along(way::device_to_host, ActionKind::copy, in),
                  run_at(place::host, OpId{1}),
                  on_copy_at(place::host, ActionKind::drop, in),
                  along(way::host_to_device, ActionKind::copy, out),
                  on_copy_at(place::host, ActionKind::drop, out),
                  run(OpId{2})};
  tape = with_drops(problem.graph, tape);
  const Partition partition = one_device(problem.graph, 1, 1);
  const auto schedule = std::get<Schedule>(lower(problem, partition, std::span(&tape, 1)));
  for (const Violation& each : check(schedule, problem.graph, problem.platform)) FAIL_CHECK(each.what);
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{9});
}

TEST_CASE("a pinned op does not wait for what its device computes beside it", "[check]") {
  Graph graph = row_of_ops(3);
  graph.ops[1].attributes.emplace_back("device", "host");
  graph.ops[1].duration = Seconds{7};
  graph.ops[2].inputs = {graph.ops[0].inputs[0]};  // of the host's op it knows nothing
  graph.ops[2].duration = Seconds{10};
  const Problem problem = problem_of(graph, gpus({.count = 1}));
  const TensorId in = problem.graph.ops[1].inputs[0];
  Tape tape;
  tape.actions = {run(OpId{0}), along(way::device_to_host, ActionKind::copy, in), run(OpId{2}),
                  run_at(place::host, OpId{1})};
  tape = with_drops(problem.graph, tape);
  const Partition partition = one_device(problem.graph, 1, 1);
  const auto schedule = std::get<Schedule>(lower(problem, partition, std::span(&tape, 1)));
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{11});
}

}  // namespace
}  // namespace plimsoll
