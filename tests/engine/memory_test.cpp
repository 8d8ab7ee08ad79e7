// Rounds within a date and the memory peaks that they decide, for both engines.

#include <catch2/catch.hpp>

#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"

using namespace plimsoll;
using namespace plimsoll::test;

TEST_CASE("at one date frees come before allocations", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // Three steps: `lets_go` frees 10 bytes at 1, when `trigger`, a copy, releases `takes`, which allocates 10.
  const Platform platform = PlatformBuilder(1).compute_streams(0, 2).link(0, 1, 1e9);
  Steps steps;
  const BufferId old_buffer = steps.buffer(0, 10), new_buffer = steps.buffer(0, 10);
  const StepId takes_after = steps.copy(0, down, 0, 1, 1'000'000'000);
  const StepId takes = steps.compute(0, 1, 0, {new_buffer}, {takes_after});
  NewStep lets_go;
  lets_go.stream = steps.builder.stream({0}, way::compute, 1);
  lets_go.work.seconds = {1};
  lets_go.allocates = {old_buffer};
  const StepId last = steps.builder.add(lets_go);
  steps.builder.free_after(last, old_buffer);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[takes.index].start == Seconds{1});
  CHECK(timeline.peaks[0] == MemoryPeak{.bytes = {10}, .step = last, .at_start = false});
}

TEST_CASE("a step of no duration has its peak and finishes one round after its start", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(2).link(0, 2, unlimited_bandwidth.value).link(1, 2, 1e9);
  Steps steps;
  const StepId first = steps.compute(0, 1);
  const StepId instant = steps.compute(0, 0, 100, {});
  const StepId copy = steps.copy(0, down, 0, 2, 5, {instant});
  const StepId empty_copy = steps.copy(1, down, 1, 2, 0, {copy});
  const StepId last = steps.compute(0, 1, 7, {}, {empty_copy});
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[first.index] == Interval{{0}, {1}, 0, 0});
  CHECK(timeline.steps[instant.index] == Interval{{1}, {1}, 0, 1});
  CHECK(timeline.steps[copy.index] == Interval{{1}, {1}, 1, 2});
  CHECK(timeline.steps[empty_copy.index] == Interval{{1}, {1}, 2, 3});
  CHECK(timeline.steps[last.index] == Interval{{1}, {2}, 3, 0});
  CHECK(timeline.peaks[0] == MemoryPeak{{100}, instant, false});
}

TEST_CASE("steps of no duration at the very start count their rounds from date 0", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  Steps steps;
  const StepId a = steps.compute(0, 0, 3, {});
  const StepId b = steps.compute(0, 0, 4, {});
  const Timeline timeline = engine.simulate(steps.builder.finish(), PlatformBuilder(1));
  CHECK(timeline.steps[a.index] == Interval{{0}, {0}, 0, 1});
  CHECK(timeline.steps[b.index] == Interval{{0}, {0}, 1, 2});
  CHECK(timeline.peaks[0] == MemoryPeak{{4}, b, false});
  CHECK(timeline.makespan == Seconds{0});
}

TEST_CASE("a duration too short to change the date goes on with its rounds", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  Steps steps;
  const StepId before = steps.compute(0, 1);
  const StepId tiny = steps.compute(0, 1e-20, 3, {});
  const StepId after = steps.compute(0, 1, 4, {});
  const Timeline timeline = engine.simulate(steps.builder.finish(), PlatformBuilder(1));
  CHECK(timeline.steps[before.index] == Interval{{0}, {1}, 0, 0});
  CHECK(timeline.steps[tiny.index] == Interval{{1}, {1}, 0, 1});
  CHECK(timeline.steps[after.index] == Interval{{1}, {2}, 1, 0});
}

TEST_CASE("the first of equal peaks is named, in the order of the streams", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  Steps steps;
  const StepId small = steps.compute(0, 1, 5, {});
  const StepId big = steps.compute(0, 1, 9, {});
  steps.compute(0, 1, 9, {});
  // On the host, both start at 0: the peak of 3 + 4 bytes is made by the later stream, whose step was issued first.
  const StreamId first_stream = steps.builder.stream({1}, way::device_to_host);
  const StreamId second_stream = steps.builder.stream({1}, way::host_to_device);
  NewStep step;
  step.work.seconds = {1};
  step.stream = second_stream;
  step.allocates = {steps.buffer(2, 3)};
  const StepId issued_first = steps.builder.add(step);
  step.stream = first_stream;
  step.allocates = {steps.buffer(2, 4)};
  steps.builder.add(step);
  const Timeline timeline = engine.simulate(steps.builder.finish(), PlatformBuilder(2));
  CHECK(small < big);
  CHECK(timeline.peaks[0] == MemoryPeak{{9}, big, false});
  CHECK(timeline.peaks[2] == MemoryPeak{{7}, issued_first, false});
}

TEST_CASE("residents are live from the start, and a peak that is never exceeded is there", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  Steps steps;
  const BufferId parameters = steps.buffer(0, 50), on_host = steps.buffer(1, 8);
  steps.builder.resident(parameters);
  steps.builder.resident(on_host);
  const BufferId made = steps.buffer(1, 8);
  const StepId frees = steps.compute(0, 1);
  steps.builder.free_after(frees, on_host);
  steps.compute(0, 1, 2, {made});
  const Timeline timeline = engine.simulate(steps.builder.finish(), PlatformBuilder(1));
  CHECK(timeline.peaks[0] == MemoryPeak{{52}, StepId{1}, false});
  CHECK(timeline.peaks[1] == MemoryPeak{{8}, StepId{0}, true});
}

TEST_CASE("capacity holds nothing back", "[engine][memory]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  Platform platform = PlatformBuilder(1);
  platform.memories[0].capacity = Bytes{1};
  Steps steps;
  steps.compute(0, 1, 1000, {});
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.makespan == Seconds{1});
  CHECK(timeline.peaks[0].bytes == Bytes{1000});
}
