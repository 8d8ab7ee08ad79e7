// Copies that share a link, and the same alone.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/lower/schedule_builder.h"
#include "sim/measure/contention.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

TEST_CASE("two copies of 20 B at 10 B/s take 4 s on one shared link and 2 s each alone", "[contention]") {
  const Platform platform = gpus({.count = 2, .uplink = BytesPerSecond{10}});
  ScheduleBuilder builder;
  for (std::uint32_t d = 0; d < 2; ++d) {
    const Buffer own{.tensor = TensorId{0}, .memory = MemoryId{d}, .bytes = Bytes{20}};
    const Buffer host{.tensor = TensorId{0}, .replica = d, .memory = MemoryId{2}, .bytes = Bytes{20}};
    const BufferId from = builder.buffer(own), to = builder.buffer(host);
    builder.resident(from);
    NewStep copy;
    copy.kind = StepKind::offload;
    copy.stream = builder.stream(DeviceId{d}, way::device_to_host);
    copy.work = {.seconds = {}, .bytes = Bytes{20}, .route = builder.route(MemoryId{d}, MemoryId{2})};
    copy.reads = {from};
    copy.allocates = {to};
    builder.add(copy);
  }
  const Schedule schedule = builder.finish();
  CHECK(simulate_event(schedule, platform).makespan.value == Approx(4).epsilon(1e-12));
  CHECK(simulate_event(without_contention(schedule, platform), platform).makespan.value == Approx(2).epsilon(1e-12));
}

}  // namespace
}  // namespace plimsoll
