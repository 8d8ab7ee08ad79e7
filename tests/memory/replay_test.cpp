#include "sim/memory/replay.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/lower/schedule_builder.h"
#include "sim/measure/memory_profile.h"
#include "tests/engine/small_platform.h"
#include "tests/generate/random.h"
#include "tests/generate/random_schedule.h"
#include "tests/memory/requests.h"
#include "tests/random_case.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

constexpr MemoryId host{2};

/// Two devices, their memories 0 and 1, and a host memory 2 that both reach.
Platform two_devices(std::optional<Bytes> capacity = {}) {
  Platform platform = test::PlatformBuilder(2).link(0, 2, 1e9).link(1, 2, 1e9).link(0, 1, 1e9);
  platform.memories[0].capacity = platform.memories[1].capacity = capacity;
  return platform;
}

BufferId buffer(ScheduleBuilder& builder, std::int64_t bytes, MemoryId memory = {0}) {
  Buffer made;
  made.memory = memory;
  made.bytes = {bytes};
  return builder.buffer(made);
}

StepId compute(ScheduleBuilder& builder, std::vector<BufferId> allocates, std::int64_t workspace = 0,
               double seconds = 1) {
  NewStep step;
  step.stream = builder.stream({0}, way::compute);
  step.work.seconds = {seconds};
  step.workspace = {workspace};
  step.allocates = std::move(allocates);
  return builder.add(step);
}

StepId copy(ScheduleBuilder& builder, DeviceId device, Way way, MemoryId from, BufferId filled, StepId after) {
  NewStep step;
  step.kind = StepKind::send;
  step.stream = builder.stream(device, way);
  step.work.bytes = builder[filled].bytes;
  step.work.route = builder.route(from, builder[filled].memory);
  step.allocates = {filled};
  step.waits = {after};
  return builder.add(step);
}

std::vector<ReservedPeak> replay(const Schedule& schedule, const Platform& platform, AllocatorKind kind) {
  return peak_reserved(schedule, simulate_event(schedule, platform), platform, usual(kind));
}

}  // namespace

TEST_CASE("resident buffers, buffers and workspaces each take their block", "[memory]") {
  ScheduleBuilder builder;
  builder.resident(buffer(builder, 3 * MiB));  // 20 MiB segment, 17 free
  builder.resident(buffer(builder, 0));        // empty: no block
  const BufferId x = buffer(builder, 6 * MiB);
  const StepId first = compute(builder, {x}, 4 * MiB);  // 9, then 13 of 20 MiB in use
  builder.free_after(first, x);
  compute(builder, {buffer(builder, 700)},
          16 * MiB);  // 2 MiB segment, 1 KiB of it; 16 do not fit the free 17? They do.
  const ReservedPeak peak = replay(builder.finish(), two_devices(), AllocatorKind::cuda)[0];
  CHECK(peak.live == Bytes{19 * MiB + 700});
  CHECK(peak.reserved == Bytes{22 * MiB});
  // The 16 MiB are handed out with the last MiB of the segment: 17 + 3 MiB, and 1 KiB.
  CHECK(peak.allocated == Bytes{20 * MiB + 1024});
  CHECK(peak.fullest.reserved - peak.fullest.allocated == Bytes{2 * MiB - 1024});
  CHECK(peak.fullest.largest_free == Bytes{2 * MiB - 1024});
  CHECK(peak.fragmentation() == Approx(1 - (20.0 * MiB + 1024) / (22.0 * MiB)));
  CHECK(!peak.out_of_memory);
}

TEST_CASE("fragmentation is that of the fullest moment", "[memory]") {
  // 5 MiB of a segment of 20, then 15 more: reserved is at its peak from the first step on, fullest after the second.
  ScheduleBuilder builder;
  compute(builder, {buffer(builder, 5 * MiB)});
  compute(builder, {buffer(builder, 14 * MiB)});
  const ReservedPeak peak = replay(builder.finish(), two_devices(), AllocatorKind::cuda)[0];
  CHECK(peak == ReservedPeak{.reserved = {20 * MiB},
                             .allocated = {20 * MiB},  // 14 + 1 that is not split off
                             .live = {19 * MiB},
                             .active = {20 * MiB},
                             .requested = {19 * MiB},
                             .fullest = {{19 * MiB}, {20 * MiB}, {20 * MiB}, {20 * MiB}, {0}, {0}}});
}

TEST_CASE("what a step frees serves the next one, even if both take no time", "[memory]") {
  for (const double seconds : {1.0, 0.0}) {
    ScheduleBuilder builder;
    const BufferId x = buffer(builder, 12 * MiB);
    builder.free_after(compute(builder, {x}, 0, seconds), x);
    compute(builder, {buffer(builder, 12 * MiB)}, 0, seconds);
    CHECK(replay(builder.finish(), two_devices(), AllocatorKind::cuda)[0].reserved == Bytes{12 * MiB});
  }
}

TEST_CASE("without rounds, as measured, a step that takes no time still allocates before it frees", "[memory]") {
  ScheduleBuilder builder;
  const BufferId x = buffer(builder, 12 * MiB);
  builder.free_after(compute(builder, {x}, 0, 0), x);
  Timeline measured;
  measured.steps = {{.start = {1}, .finish = {1}}};
  const auto peaks = peak_reserved(builder.finish(), measured, two_devices(), usual(AllocatorKind::cuda));
  CHECK(peaks[0].reserved == Bytes{12 * MiB});
}

TEST_CASE("a prefetched buffer comes from its copy stream's pool, a received one from the receiver's", "[memory]") {
  ScheduleBuilder builder;
  const BufferId x = buffer(builder, 12 * MiB), kept = buffer(builder, 12 * MiB, host);
  builder.resident(kept);
  const StepId used = compute(builder, {x});
  builder.free_after(used, x);  // 12 MiB are free for the compute stream
  SECTION("prefetched: 12 MiB more for the copy stream") {
    copy(builder, {0}, way::host_to_device, host, buffer(builder, 12 * MiB), used);
    const auto peaks = replay(builder.finish(), two_devices(), AllocatorKind::cuda);
    CHECK(peaks[0].reserved == Bytes{24 * MiB});
    CHECK(peaks[0].live == Bytes{12 * MiB});
    CHECK(peaks[host.index].reserved == Bytes{12 * MiB});
    CHECK(peaks[host.index].allocated == Bytes{12 * MiB});
    CHECK(peaks[host.index].live == Bytes{12 * MiB});
  }
  SECTION("received: the 12 MiB are used again") {
    copy(builder, {1}, {place::device, MemoryId{0}}, {1}, buffer(builder, 12 * MiB), used);
    const auto peaks = replay(builder.finish(), two_devices(), AllocatorKind::cuda);
    CHECK(peaks[0].reserved == Bytes{12 * MiB});
    CHECK(peaks[1] == ReservedPeak{});
  }
}

TEST_CASE("of starts at one date the lower stream's comes first", "[memory]") {
  ScheduleBuilder builder;
  const StreamId low = builder.stream({0}, way::compute, 0), high = builder.stream({0}, way::compute, 1);
  NewStep step;
  step.work.seconds = {1};
  step.stream = high;
  step.allocates = {buffer(builder, 12 * MiB)};
  const StepId issued_first = builder.add(step);
  step.stream = low;
  step.allocates = {buffer(builder, 14 * MiB)};
  builder.add(step);
  Platform platform = two_devices(Bytes{20 * MiB});
  platform.devices[0].compute_streams = 2;
  const auto peaks = replay(builder.finish(), platform, AllocatorKind::cuda);
  CHECK(peaks[0].out_of_memory ==
        OutOfMemory{issued_first, {12 * MiB}, {14 * MiB}, {14 * MiB}, {14 * MiB}, {0}, {20 * MiB}});
}

TEST_CASE("running out of memory is a value, and the replay goes on", "[memory]") {
  ScheduleBuilder builder;
  builder.resident(buffer(builder, 20 * MiB));
  const BufferId x = buffer(builder, 14 * MiB);
  builder.free_after(compute(builder, {x}), x);
  const StepId failing = compute(builder, {buffer(builder, 24 * MiB)});
  Schedule schedule = builder.finish();
  SECTION("the cache is given back first: 20 + 24 = 44 MiB suffice") {
    CHECK(replay(schedule, two_devices(Bytes{44 * MiB}), AllocatorKind::cuda)[0].reserved == Bytes{44 * MiB});
    CHECK(!replay(schedule, two_devices(Bytes{44 * MiB}), AllocatorKind::cuda)[0].out_of_memory);
    CHECK(replay(schedule, two_devices(), AllocatorKind::cuda)[0].reserved == Bytes{58 * MiB});
  }
  SECTION("a byte less does not") {
    const auto peaks = replay(schedule, two_devices(Bytes{44 * MiB - 1}), AllocatorKind::cuda);
    CHECK(peaks[0].reserved == Bytes{44 * MiB});
    CHECK(peaks[0].out_of_memory ==
          OutOfMemory{failing, {24 * MiB}, {20 * MiB}, {20 * MiB}, {20 * MiB}, {0}, {44 * MiB - 1}});
  }
  SECTION("the budget, which is of live bytes, limits nothing") {
    schedule.budget = Bytes{10 * MiB};
    const auto peaks = replay(schedule, two_devices(Bytes{100 * MiB}), AllocatorKind::cuda);
    CHECK(!peaks[0].out_of_memory);
    CHECK(peaks[0].reserved == Bytes{58 * MiB});
  }
  SECTION("expandable: 40 MiB for 20 + 14, and once 14 are free 44 need 20 more") {
    const auto peaks = replay(schedule, two_devices(Bytes{60 * MiB}), AllocatorKind::cuda_expandable);
    CHECK(peaks[0].reserved == Bytes{60 * MiB});
    CHECK(!peaks[0].out_of_memory);
  }
}

namespace {

/// Random schedules whose sizes range from single bytes to 32 MB.
RandomSchedule large_random_schedule(std::uint64_t seed) {
  const auto most_steps = 20 + 4 * static_cast<std::uint32_t>(seed);
  RandomSchedule made =
      random_schedule({.seed = seed, .most_devices = 4, .most_steps = most_steps, .on_grid = seed % 2 == 0});
  Random random(seed);
  for (Buffer& any : made.schedule.buffers) any.bytes = (std::int64_t{1} << random.below(16)) * any.bytes;
  for (Step& step : made.schedule.steps) step.workspace = (std::int64_t{1} << random.below(16)) * step.workspace;
  return made;
}

Platform with_capacity(Platform platform, Bytes capacity) {
  for (Memory& memory : platform.memories) memory.capacity = capacity;
  return platform;
}

}  // namespace

TEST_CASE("exact peaks are the engine's live peaks, and live <= allocated <= reserved with the others", "[memory]") {
  for (const RandomCase seed : random_cases(0, 99)) {
    INFO("seed " << seed);
    const auto& [platform, schedule] = large_random_schedule(seed);
    const Timeline timeline = simulate_event(schedule, platform);
    const auto exact = peak_reserved(schedule, timeline, platform, usual(AllocatorKind::exact));
    REQUIRE(exact.size() == platform.memories.size());
    for (std::size_t m = 0; m < exact.size(); ++m) {
      const Bytes live = timeline.peaks[m].bytes;
      REQUIRE(exact[m] == ReservedPeak{.reserved = live,
                                       .allocated = live,
                                       .live = live,
                                       .active = live,
                                       .requested = live,
                                       .fullest = {live, live, live, live, {}, {}}});
      REQUIRE(at_peak(schedule, timeline, platform, id_at<MemoryId>(m)).bytes == live);
    }
    for (const AllocatorKind kind :
         {AllocatorKind::cuda, AllocatorKind::cuda_expandable, AllocatorKind::cuda_stitching, AllocatorKind::planned}) {
      const auto peaks = peak_reserved(schedule, timeline, platform, usual(kind));
      REQUIRE(peaks == peak_reserved(schedule, timeline, platform, usual(kind)));
      for (std::size_t m = 0; m < peaks.size(); ++m) {
        if (!platform.memories[m].device) {
          REQUIRE(peaks[m] == exact[m]);
          continue;
        }
        REQUIRE(peaks[m].live == exact[m].live);
        REQUIRE(peaks[m].requested == peaks[m].live);
        REQUIRE(peaks[m].active >= peaks[m].requested);
        REQUIRE(peaks[m].active >= peaks[m].allocated);
        REQUIRE(peaks[m].reserved >= peaks[m].active);
        REQUIRE(peaks[m].fullest.reserved == peaks[m].reserved);
        REQUIRE(peaks[m].fullest.reserved - peaks[m].fullest.active >= peaks[m].fullest.largest_free);
        REQUIRE(peaks[m].reserved.count % (2 * MiB) == 0);
        REQUIRE(!peaks[m].out_of_memory);
      }
    }
  }
}

TEST_CASE("a limit below what is reserved without one is kept, or reported as out of memory", "[memory]") {
  int kept = 0, reported = 0;
  for (const RandomCase seed : random_cases(20, 99)) {
    INFO("seed " << seed);
    const auto& [platform, schedule] = large_random_schedule(seed);
    const Timeline timeline = simulate_event(schedule, platform);
    for (const AllocatorKind kind : {AllocatorKind::cuda, AllocatorKind::cuda_expandable}) {
      const Bytes unlimited = peak_reserved(schedule, timeline, platform, usual(kind))[0].reserved;
      for (const std::int64_t percent : {100, 90, 75, 50}) {
        const Bytes limit{unlimited.count * percent / 100};
        const ReservedPeak peak = peak_reserved(schedule, timeline, with_capacity(platform, limit), usual(kind))[0];
        REQUIRE(peak.out_of_memory.has_value() == (peak.reserved > limit));
        ++(peak.out_of_memory ? reported : kept);
        if (percent == 100) REQUIRE(!peak.out_of_memory);
      }
    }
  }
  if (all_cases()) CHECK(kept > 100);
  if (all_cases()) CHECK(reported > 100);
}

TEST_CASE("what a copy to the host frees is active until it is over, but no longer allocated", "[memory]") {
  ScheduleBuilder builder;
  const BufferId x = buffer(builder, 12 * MiB);
  const StepId made = compute(builder, {x});
  const StepId leaves = copy(builder, {0}, way::device_to_host, {0}, buffer(builder, 12 * MiB, host), made);
  builder.free_after(leaves, x);
  compute(builder, {}, 0, 1e-6);
  compute(builder, {buffer(builder, 14 * MiB)}, 0, 1e-6);  // while it leaves
  const ReservedPeak peak = replay(builder.finish(), two_devices(), AllocatorKind::cuda)[0];
  CHECK(peak.active == Bytes{26 * MiB});
  CHECK(peak.requested == Bytes{26 * MiB});
  CHECK(peak.live == Bytes{26 * MiB});
  CHECK(peak.allocated == Bytes{14 * MiB});
  CHECK(peak.reserved == Bytes{26 * MiB});
}

TEST_CASE("each compute stream takes a cuBLAS workspace after the buffers of its first step, and keeps it",
          "[memory]") {
  ScheduleBuilder builder;
  NewStep step;
  step.work.seconds = {1};
  for (const std::uint32_t number : {0U, 0U, 1U}) {
    step.stream = builder.stream({0}, way::compute, number);
    const BufferId x = buffer(builder, 12 * MiB);
    step.allocates = {x};
    builder.free_after(builder.add(step), x);
  }
  Platform platform = two_devices();
  platform.devices[0].compute_streams = 2;
  const Schedule schedule = builder.finish();
  AllocatorChoice choice = usual(AllocatorKind::cuda);
  const auto peak = [&] { return peak_reserved(schedule, simulate_event(schedule, platform), platform, choice); };
  CHECK(peak()[0].reserved == Bytes{24 * MiB});
  choice.cublas_workspace = true;
  CHECK(peak()[0].reserved == Bytes{64 * MiB});  // a segment of 20 MiB for each 8,519,680 bytes
  CHECK(peak()[0].requested == Bytes{24 * MiB + 2 * 8519680});
  CHECK(peak()[0].live == Bytes{24 * MiB + 2 * 8519680});
  CHECK(peak()[1].reserved == Bytes{0});
  platform.devices[0].model = "NVIDIA H200";
  CHECK(peak()[0].reserved == Bytes{88 * MiB});
}

TEST_CASE("out of memory says whether bytes are missing or room in one piece", "[memory]") {
  ScheduleBuilder builder;
  const BufferId a = buffer(builder, 8 * MiB), b = buffer(builder, 8 * MiB), c = buffer(builder, 6 * MiB),
                 d = buffer(builder, 8 * MiB);
  const StepId all = compute(builder, {a, b, c, d});  // a, b in one segment of 20 MiB, c and d in another
  builder.free_after(all, a);
  builder.free_after(all, c);
  compute(builder, {buffer(builder, 14 * MiB)});
  const Schedule schedule = builder.finish();
  const auto failed = [&](std::int64_t capacity) {
    const auto peaks = replay(schedule, two_devices(Bytes{capacity}), AllocatorKind::cuda);
    REQUIRE(peaks[0].out_of_memory.has_value());
    return *peaks[0].out_of_memory;
  };
  CHECK(failed(40 * MiB).is_fragmentation());  // 24 are free
  CHECK(failed(40 * MiB).largest_free == Bytes{8 * MiB});
  CHECK(failed(40 * MiB).active == Bytes{16 * MiB});
  CHECK(replay(schedule, two_devices(Bytes{40 * MiB}), AllocatorKind::cuda)[0].retries == 1);
  CHECK_FALSE(OutOfMemory{.requested = {15 * MiB}, .active = {16 * MiB}, .limit = {30 * MiB}}.is_fragmentation());
  CHECK(OutOfMemory{.requested = {14 * MiB}, .active = {16 * MiB}, .limit = {30 * MiB}}.is_fragmentation());
}

TEST_CASE("a static plan of a device takes what is live at most, in whole units of 2 MiB", "[memory]") {
  // 12 MiB, then 14 beside them, then 26 when both are gone: 26 are live at most.
  ScheduleBuilder builder;
  const BufferId x = buffer(builder, 12 * MiB), y = buffer(builder, 14 * MiB - 700);
  compute(builder, {x});
  const StepId second = compute(builder, {y}, 700);
  builder.free_after(second, x);
  builder.free_after(second, y);
  compute(builder, {buffer(builder, 25 * MiB)});
  const Schedule schedule = builder.finish();
  const ReservedPeak peak = replay(schedule, two_devices(), AllocatorKind::planned)[0];
  CHECK(peak.live == Bytes{26 * MiB});
  CHECK(peak.allocated == Bytes{26 * MiB + 512});  // 14 MiB - 512 and 1024
  CHECK(peak.reserved == Bytes{28 * MiB});
  CHECK(peak.fullest.largest_free == Bytes{2 * MiB - 512});
  CHECK(!peak.out_of_memory);
  const auto small = replay(schedule, two_devices(Bytes{27 * MiB}), AllocatorKind::planned);
  REQUIRE(small[0].out_of_memory);
  CHECK(small[0].out_of_memory->limit == Bytes{27 * MiB});
  CHECK(small[0].out_of_memory->is_fragmentation());
  CHECK(replay(schedule, two_devices(Bytes{28 * MiB}), AllocatorKind::planned)[0].out_of_memory == std::nullopt);
}
