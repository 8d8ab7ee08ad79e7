// What a timeline comes to: memory over time, what is in memory at the peak, metrics, and a second count of the peak.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/schedule_builder.h"
#include "sim/measure/memory_profile.h"
#include "sim/measure/metrics.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Steps on one compute stream and a copy stream, on tensors of 100 bytes: 0 makes a (2 s), 1 copies a to the host
/// (100 B at 50 B/s), 2 makes b beside a with a workspace of 30 (1 s), 3 recomputes for 4 s once the copy has ended.
struct Example {
  Problem problem;
  Schedule schedule;
  Timeline timeline;
  BufferId a, b, host;

  Example() {
    Graph graph;
    graph.name = "example";
    graph.storages = 2;
    graph.tensors = {{.name = "a", .bytes = Bytes{100}, .storage = StorageId{0}},
                     {.name = "b", .kind = TensorKind::gradient, .bytes = Bytes{60}, .storage = StorageId{1}}};
    graph.ops = {{.name = "makes a", .duration = Seconds{2}, .outputs = {TensorId{0}}},
                 {.name = "makes b", .duration = Seconds{1}, .outputs = {TensorId{1}}}};
    problem = problem_of(graph, gpus({.count = 1, .to_host = BytesPerSecond{50}}));
    ScheduleBuilder builder;
    a = builder.buffer({.tensor = TensorId{0}, .memory = MemoryId{0}, .bytes = Bytes{100}});
    b = builder.buffer({.tensor = TensorId{1}, .memory = MemoryId{0}, .bytes = Bytes{60}});
    host = builder.buffer({.tensor = TensorId{0}, .memory = MemoryId{1}, .bytes = Bytes{100}});
    const StreamId compute = builder.stream(DeviceId{0}, way::compute);
    const StreamId out = builder.stream(DeviceId{0}, way::device_to_host);
    const StepId first =
        builder.add({.stream = compute, .op = OpId{0}, .work = {.seconds = Seconds{2}}, .allocates = {a}});
    const StepId copy = builder.add({.kind = StepKind::offload,
                                     .stream = out,
                                     .work = {.bytes = Bytes{100}, .route = builder.route(MemoryId{0}, MemoryId{1})},
                                     .reads = {a},
                                     .allocates = {host},
                                     .waits = {first}});
    builder.free_after(copy, a);
    builder.add(
        {.stream = compute, .op = OpId{1}, .work = {.seconds = Seconds{1}}, .workspace = Bytes{30}, .allocates = {b}});
    builder.add({.kind = StepKind::recompute,
                 .stream = compute,
                 .op = OpId{1},
                 .work = {.seconds = Seconds{4}},
                 .workspace = Bytes{10},
                 .waits = {copy}});
    schedule = builder.finish();
    timeline = simulate_event(schedule, problem.platform);
  }
};

TEST_CASE("memory_profile has one point a change, and the peak lies where the ledger says", "[measures]") {
  const Example e;
  const std::vector<MemoryPoint> points = memory_profile(e.schedule, e.timeline, e.problem.platform, MemoryId{0});
  // 0 s: a. 2 s: b and its workspace. 3 s: the workspace goes. 4 s: the copy ends, a goes, the last step's workspace.
  // 8 s: it goes.
  const std::vector<std::pair<double, std::int64_t>> expected{{0, 0},  {0, 100}, {2, 190}, {3, 160},
                                                              {4, 60}, {4, 70},  {8, 60}};
  REQUIRE(points.size() == expected.size());
  for (std::size_t p = 0; p < points.size(); ++p) {
    CHECK(points[p].date.value == expected[p].first);
    CHECK(points[p].live == Bytes{expected[p].second});
  }
  CHECK(e.timeline.peaks[0].bytes == Bytes{190});
  CHECK(e.timeline.peaks[0].step == StepId{2});
  CHECK(recount(e.schedule, e.timeline, e.problem.platform) == std::vector<Bytes>{Bytes{190}, Bytes{100}});
}

TEST_CASE("at_peak names what is in memory at the fullest moment, largest first", "[measures]") {
  const Example e;
  const AtPeak peak = at_peak(e.schedule, e.timeline, e.problem.platform, MemoryId{0});
  CHECK(peak.bytes == Bytes{190});
  CHECK(peak.workspace == Bytes{30});
  CHECK(peak.buffers == std::vector<BufferId>{e.a, e.b});
}

TEST_CASE("metrics: makespan, recomputing, bytes moved, exposed transfer, bubble", "[measures]") {
  const Example e;
  const Metrics metrics = measure(e.problem, e.schedule, e.timeline);
  CHECK(metrics.makespan == Seconds{8});
  CHECK(metrics.peak == Bytes{190});
  CHECK(metrics.recompute == Seconds{4});
  CHECK(metrics.moved == Bytes{100});
  CHECK(metrics.exposed_transfer == Seconds{1});  // the copy runs from 2 to 4 s, nothing computes from 3 to 4 s
  CHECK(metrics.bubble == Approx(1.0 / 8));
  CHECK(metrics.devices.at(0).busy == Seconds{7});
  CHECK(metrics.fits);
}

TEST_CASE("a device over its budget does not fit", "[measures]") {
  Example e;
  e.schedule.budget = Bytes{189};
  CHECK(!measure(e.problem, e.schedule, e.timeline).fits);
  e.schedule.budget = Bytes{190};
  CHECK(measure(e.problem, e.schedule, e.timeline).fits);
}

TEST_CASE("recount takes frees before allocations in each round of a date, whatever the order of the steps",
          "[measures]") {
  const Example e;
  Timeline timeline = e.timeline;
  // The same dates, but the last step starts a round before the copy ends: its workspace meets a.
  timeline.steps[1].finish_round = 2;
  timeline.steps[3].start_round = 1;
  CHECK(recount(e.schedule, timeline, e.problem.platform)[0] == Bytes{190});
  timeline.steps[2].finish = timeline.steps[3].start;
  timeline.steps[2].finish_round = 3;  // now b's workspace, a and the last workspace are there at once
  CHECK(recount(e.schedule, timeline, e.problem.platform)[0] == Bytes{200});
}

}  // namespace
}  // namespace plimsoll
