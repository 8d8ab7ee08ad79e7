// Places are data: what a device's host and disk are is the platform's to say, and tapes that name other memories are
// lowered, judged and timed as those that name the host.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/judge/workspace_memories.h"
#include "sim/lower/lowering.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Two GPUs (memories 0 and 1) and a host (2), joined by switches as of tests/generate/problems.h.
Problem two_gpus(Platform platform) {
  return problem_of(row_of_ops(3), std::move(platform));
}

Schedule lowered(const Problem& problem, const Tape& tape) {
  const Partition partition = one_device(problem.graph, 1, problem.platform.devices.size());
  std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  if (const auto* why = std::get_if<std::string>(&made)) FAIL(*why);
  return std::get<Schedule>(std::move(made));
}

/// t1 spends o1's time at a place.
Tape away_to(MemoryId at) {
  Tape tape;
  const TensorId t1{1};
  tape.actions = {run(OpId{0}),
                  along({place::device, at}, ActionKind::copy, t1),
                  run(OpId{1}),
                  on_tensor(ActionKind::drop, t1),
                  along({at, place::device}, ActionKind::move, t1),
                  run(OpId{2})};
  return tape;
}

TEST_CASE("a device's host is the nearest that is no device's, unless the platform says another", "[places]") {
  Platform platform = gpus({.count = 2});
  CHECK(memory_at(platform, DeviceId{0}, place::host) == MemoryId{2});
  CHECK(memory_at(platform, DeviceId{0}, place::device) == MemoryId{0});
  CHECK(!memory_at(platform, DeviceId{0}, place::disk));
  platform.devices[0].host = MemoryId{1};
  CHECK(memory_at(platform, DeviceId{0}, place::host) == MemoryId{1});
  CHECK(memory_at(platform, DeviceId{1}, place::host) == MemoryId{2});
  platform.devices[0].disk = MemoryId{2};
  CHECK(memory_at(platform, DeviceId{0}, place::disk) == MemoryId{2});
  CHECK(!memory_at(platform, DeviceId{0}, MemoryId{3}));
}

TEST_CASE("a value may leave for another device's memory and come back", "[places]") {
  const Problem problem = two_gpus(gpus({.count = 2, .to_peers = BytesPerSecond{4}}));
  for (const MemoryId at : {MemoryId{1}, MemoryId{2}}) {
    const Schedule schedule = lowered(problem, away_to(at));
    CHECK(check(schedule, problem.graph, problem.platform).empty());
    const Timeline timeline = simulate_event(schedule, problem.platform);
    CHECK(timeline.peaks[at.index].bytes == problem.graph.tensors[1].bytes);
    CHECK(timeline.peaks[3 - at.index].bytes == Bytes{0});
    CHECK(recount(schedule, timeline, problem.platform)[at.index] == problem.graph.tensors[1].bytes);
  }
}

TEST_CASE("a memory that is full is named, a device's that only keeps values too, against its capacity", "[places]") {
  Problem problem = two_gpus(gpus({.count = 2, .to_peers = BytesPerSecond{4}}));
  problem.platform.memories[1].capacity = Bytes{1};
  Schedule schedule = lowered(problem, away_to(MemoryId{1}));
  schedule.budget = Bytes{1000};
  const Timeline timeline = simulate_event(schedule, problem.platform);
  std::vector<Bytes> peaks;
  for (const auto& peak : timeline.peaks) peaks.push_back(peak.bytes);
  const std::vector<Overfull> full = overfull(peaks, problem.platform, schedule);
  REQUIRE(full.size() == 1);
  CHECK(full[0].memory == MemoryId{1});
  CHECK(full[0].limit == Bytes{1});
  CHECK(!full[0].computes);
}

TEST_CASE("a stream of a memory that is not there is malformed, also one that no step uses", "[places]") {
  const Problem problem = two_gpus(gpus({.count = 2}));
  for (const Way way :
       {Way{MemoryId{3}, MemoryId{3}}, Way{MemoryId{3}, place::device}, Way{place::host, MemoryId{9}}}) {
    Schedule schedule = lowered(problem, away_to(MemoryId{2}));
    REQUIRE(check(schedule, problem.graph, problem.platform).empty());
    schedule.streams.push_back({DeviceId{0}, way});
    const std::vector<Violation> found = check(schedule, problem.graph, problem.platform);
    REQUIRE(found.size() == 1);
    CHECK(found[0].rule == Rule::malformed);
    CHECK(found[0].what == "a stream names a memory that does not exist");
  }
}

TEST_CASE("an op that is no update may run at a host, in the roofline of its memory's rates", "[places]") {
  Graph graph = row_of_ops(3);
  graph.source.dtype = "fp32";
  graph.ops[1].flops = Flops{60};
  graph.ops[1].bytes_moved = Bytes{8};
  graph.ops[1].workspace = Bytes{5};
  Platform platform = gpus({.count = 1});
  const MemoryId host{1};
  Tape tape;
  const TensorId t1{1}, t2{2};
  tape.actions = {run(OpId{0}), along(way::device_to_host, ActionKind::copy, t1), run_at(place::host, OpId{1}),
                  along(way::host_to_device, ActionKind::move, t2), run(OpId{2})};
  SECTION("whose rates are known") {
    platform.memories[host.index].peak["fp32"] = FlopsPerSecond{20};
    platform.memories[host.index].bandwidth = BytesPerSecond{4};
    const Problem problem = problem_of(graph, platform);
    const Schedule schedule = lowered(problem, tape);
    CHECK(check(schedule, problem.graph, problem.platform).empty());
    const auto step = std::ranges::find(schedule.steps, OpId{1}, &Step::op);
    REQUIRE(step != schedule.steps.end());
    CHECK(step->work.seconds == Seconds{3});  // computing; moving takes 2
    const Timeline timeline = simulate_event(schedule, problem.platform);
    CHECK(timeline.peaks[host.index].bytes == graph.tensors[1].bytes + graph.tensors[2].bytes + Bytes{5});
    CHECK(recount(schedule, timeline, problem.platform)[host.index] == timeline.peaks[host.index].bytes);
    Schedule faster = schedule;
    faster.steps[static_cast<std::size_t>(step - schedule.steps.begin())].work.seconds = Seconds{2};
    CHECK(check(faster, problem.graph, problem.platform).size() == 1);
    Schedule leaner = schedule;
    leaner.steps[static_cast<std::size_t>(step - schedule.steps.begin())].workspace = Bytes{0};
    CHECK(check(leaner, problem.graph, problem.platform).size() == 1);
  }
  SECTION("or are not") {
    const Problem problem = problem_of(graph, platform);
    const Partition partition = one_device(problem.graph, 1, 1);
    const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
    REQUIRE(std::holds_alternative<std::string>(made));
    CHECK(std::get<std::string>(made) == "platform 'test' does not state how fast 'host' computes 'o1'");
  }
}

TEST_CASE("a workspace is where its stream computes, and a copy's on the device", "[places]") {
  Schedule schedule;
  for (const Way way : {way::compute, way::on_host, Way{MemoryId{1}, MemoryId{1}}, way::device_to_host}) {
    schedule.streams.push_back({DeviceId{0}, way});
  }
  const Platform platform = gpus({.count = 2});  // memories: gpu0's, gpu1's, the host's
  CHECK(workspace_memories(schedule, platform) ==
        std::vector<MemoryId>{MemoryId{0}, MemoryId{2}, MemoryId{1}, MemoryId{0}});
}

}  // namespace
}  // namespace plimsoll
