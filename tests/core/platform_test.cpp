// Routes: fewest links, both directions, none where there is none.

#include <catch2/catch.hpp>

#include "sim/core/expects.h"
#include "sim/core/platform.h"
#include "sim/lower/schedule_builder.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

TEST_CASE("a route takes the fewest links, and says which way each is used", "[platform]") {
  const Platform platform = gpus({.count = 2, .uplink = BytesPerSecond{1}, .peer_latency = Seconds{4}});
  const std::optional<Route> up = route_between(platform, MemoryId{0}, MemoryId{2});
  REQUIRE(up);
  REQUIRE(up->links.size() == 2);  // its own link to the bus, the uplink
  CHECK(platform[up->links[0].link].name == "pcie0");
  CHECK(!up->links[0].down);
  const std::optional<Route> across = route_between(platform, MemoryId{0}, MemoryId{1});
  REQUIRE(across);
  REQUIRE(across->links.size() == 2);  // over the bus: over the switch would be as many, but is named later
  CHECK(platform[across->links[0].link].name == "pcie0");
  CHECK(across->links[1].down);
}

TEST_CASE("memories forward nothing, and a memory that no link reaches has no route", "[platform]") {
  Platform platform = gpus({.count = 2});
  platform.links.erase(platform.links.begin() + 1, platform.links.end());  // gpu0 - host is left
  CHECK(route_between(platform, MemoryId{0}, MemoryId{2}));
  CHECK(!route_between(platform, MemoryId{0}, MemoryId{1}));
  CHECK(memory_at(platform, DeviceId{0}, place::host) == MemoryId{2});
  CHECK(!memory_at(platform, DeviceId{1}, place::host));
}

TEST_CASE("the builder refuses waits on later steps and buffers with two lives", "[builder]") {
  ScheduleBuilder builder;
  const StreamId stream = builder.stream(DeviceId{0}, way::compute);
  const BufferId buffer = builder.buffer({.bytes = Bytes{1}});
  CHECK_THROWS_AS(builder.add({.stream = stream, .waits = {StepId{0}}}), BrokenPromise);
  CHECK_THROWS_AS(builder.free_after(StepId{0}, buffer), BrokenPromise);
  const StepId step = builder.add({.stream = stream, .allocates = {buffer}});
  CHECK_THROWS_AS(builder.add({.stream = stream, .allocates = {buffer}}), BrokenPromise);
  builder.free_after(step, buffer);
  CHECK_THROWS_AS(builder.free_after(step, buffer), BrokenPromise);
}

TEST_CASE("the builder drops waits that say nothing and finds streams and routes again", "[builder]") {
  ScheduleBuilder builder;
  const StreamId compute = builder.stream(DeviceId{0}, way::compute),
                 peer = builder.stream(DeviceId{0}, Way{place::device, MemoryId{1}}, 3);
  CHECK(builder.stream(DeviceId{0}, way::compute) == compute);
  CHECK(builder.stream(DeviceId{0}, Way{place::device, MemoryId{1}}, 3) == peer);
  CHECK(builder.route(MemoryId{0}, MemoryId{1}) == builder.route(MemoryId{0}, MemoryId{1}));
  const StepId first = builder.add({.stream = compute});
  const StepId second = builder.add({.stream = compute, .waits = {first, first}});
  builder.add({.stream = peer, .waits = {second, first, second}});
  const Schedule schedule = builder.finish();
  CHECK(schedule.waits_of(schedule.steps[1]).empty());
  CHECK(schedule.waits_of(schedule.steps[2]).size() == 2);
}

}  // namespace
}  // namespace plimsoll
