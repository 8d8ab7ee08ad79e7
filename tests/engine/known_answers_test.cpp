// Times of transfers that can be worked out by hand, for both engines.

#include <catch2/catch.hpp>

#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"

using namespace plimsoll;
using namespace plimsoll::test;

TEST_CASE("a lone flow takes latency plus bytes over bandwidth, to the bit", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  for (const double bandwidth : {25e9, 300e9}) {
    for (const double latency : {0.0, 5e-6, 10e-6}) {
      for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4096}, GB}) {
        const Platform platform = PlatformBuilder(1).link(0, 1, bandwidth, latency);
        Steps steps;
        steps.copy(0, down, 0, 1, bytes);
        const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
        CHECK(timeline.makespan.value == Approx(latency + static_cast<double>(bytes) / bandwidth).epsilon(1e-15));
        if (latency == 0) CHECK(timeline.makespan.value == static_cast<double>(bytes) / bandwidth);
      }
    }
  }
}

TEST_CASE("zero bytes take the latency and the step's seconds", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(1).link(0, 1, 25e9, 0.25);
  Steps steps;
  const StepId first = steps.copy(0, down, 0, 1, 0, {}, 0.5);
  const StepId second = steps.compute(0, 1, {first});
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[first.index].finish == Seconds{0.75});
  CHECK(timeline.steps[second.index].finish == Seconds{1.75});
}

TEST_CASE("full duplex carries both directions at full rate, half duplex shares", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  for (const bool full_duplex : {true, false}) {
    const Platform platform = PlatformBuilder(1).link(0, 1, 1e9, 0, full_duplex);
    Steps steps;
    steps.copy(0, down, 0, 1, GB);
    steps.copy(0, up, 1, 0, GB);
    const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
    const Seconds expected{full_duplex ? 1.0 : 2.0};
    CHECK(timeline.steps[0].finish == expected);
    CHECK(timeline.steps[1].finish == expected);
  }
}

TEST_CASE("two GPUs behind one switch share its uplink and not its downlink", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // memories gpu0 gpu1 host, switch 3; 1 GB/s everywhere
  const Platform platform = PlatformBuilder(2, 1, 1).link(0, 3, 1e9).link(1, 3, 1e9).link(3, 2, 1e9);
  Steps steps;
  steps.copy(0, up, 2, 0, GB);
  steps.copy(1, up, 2, 1, GB);
  steps.copy(0, down, 0, 2, GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[0].finish == Seconds{2});
  CHECK(timeline.steps[1].finish == Seconds{2});
  CHECK(timeline.steps[2].finish == Seconds{1});
}

TEST_CASE("a flow's share does not depend on its latency", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // gpu0 and gpu1 reach the host over one link of 1 GB/s, after links of 1 us and 9 us.
  const Platform platform = PlatformBuilder(2, 1, 1).link(0, 3, 100e9, 1e-6).link(1, 3, 100e9, 9e-6).link(3, 2, 1e9);
  Steps steps;
  steps.copy(0, down, 0, 2, GB);
  steps.copy(1, down, 1, 2, GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  // gpu0 is alone for 8 us: 8 kB; both share until it ends, and gpu1 has 8 kB left for itself.
  CHECK(timeline.steps[0].finish.value == Approx(1e-6 + 8e-6 + 2 * (1 - 8e-6)).epsilon(1e-12));
  CHECK(timeline.steps[1].finish.value == Approx(9e-6 + 2 * (1 - 8e-6) + 8e-6).epsilon(1e-12));
}

TEST_CASE("what a bounded flow leaves goes to the others", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // gpu0 is bound by its own 1 GB/s; the link to the host has 4 GB/s: gpu1 gets 3 GB/s.
  const Platform platform = PlatformBuilder(2, 1, 1).link(0, 3, 1e9).link(1, 3, 100e9).link(3, 2, 4e9);
  Steps steps;
  steps.copy(0, down, 0, 2, 2 * GB);
  steps.copy(1, down, 1, 2, 3 * GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[0].finish == Seconds{2});
  CHECK(timeline.steps[1].finish == Seconds{1});
}

TEST_CASE("links without a limit take no time and bind nobody", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(2, 1, 1)
                                .link(0, 3, unlimited_bandwidth.value, 0.5)
                                .link(1, 3, unlimited_bandwidth.value)
                                .link(3, 2, 1e9);
  Steps steps;
  const StepId peer = steps.copy(0, {place::device, MemoryId{1}}, 0, 1, 50 * GB);
  const StepId offload = steps.copy(1, down, 1, 2, GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[peer.index].finish == Seconds{0.5});
  CHECK(timeline.steps[offload.index].finish == Seconds{1});
}

TEST_CASE("streams run in order and steps wait for others", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(2).link(0, 1, 1e9);
  Steps steps;
  const StepId a = steps.compute(0, 1);
  const StepId b = steps.compute(0, 2);
  const StepId c = steps.compute(1, 4, {a});
  const StepId d = steps.compute(0, 1, {c});
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[b.index] == Interval{.start = {1}, .finish = {3}});
  CHECK(timeline.steps[c.index] == Interval{.start = {1}, .finish = {5}});
  CHECK(timeline.steps[d.index] == Interval{.start = {5}, .finish = {6}});
  CHECK(timeline.makespan == Seconds{6});
}

TEST_CASE("a completion is seen at once, whatever else is waited for", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // The copy ends at 1 and releases gpu1, while gpu0 computes until 2.
  const Platform platform = PlatformBuilder(2).link(0, 2, 1e9);
  Steps steps;
  steps.compute(0, 2);
  const StepId copy = steps.copy(0, down, 0, 2, GB);
  const StepId released = steps.compute(1, 1, {copy});
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[released.index].start == Seconds{1});
}

TEST_CASE("transfers slow down the kernels of the devices at their ends, from start to finish", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  // Copies of 1 s (0.5 s of them latency) between gpu0 and the host; gpu0 runs at half and quarter rate, gpu1 too.
  const Platform platform =
      PlatformBuilder(2).link(0, 2, 2e9, 0.5).slow_down(0, {1, 2, 4}).slow_down(1, {1, 2, 4}).compute_streams(0, 2);
  Steps steps;
  const StepId one = steps.compute(0, 1);
  const StepId other = steps.timed(0, way::compute, 0.25, {}, 1);
  const StepId elsewhere = steps.compute(1, 1);
  const StepId out = steps.copy(0, down, 0, 2, GB);
  steps.copy(0, up, 2, 0, GB);
  const StepId third = steps.copy(0, down, 0, 2, GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[out.index].finish == Seconds{1});
  CHECK(timeline.steps[third.index].finish == Seconds{2});
  CHECK(timeline.steps[other.index].finish == Seconds{1});
  // 0.25 of it by 1 s, 0.5 more by 2 s, the last quarter at full rate.
  CHECK(timeline.steps[one.index].finish == Seconds{2.25});
  CHECK(timeline.steps[elsewhere.index].finish == Seconds{1});
}

TEST_CASE("transfers slow kernels that the memory bounds down by factors of their own", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const auto simulate = [&](const Platform& platform) {
    Steps steps;
    const std::vector<StepId> ids{steps.compute(0, 1), steps.memory_bound(0, 1), steps.memory_bound(0, 1, 1),
                                  steps.timed(0, way::compute, 1, {}, 2)};
    steps.copy(0, down, 0, 1, 5 * GB);
    const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
    std::vector<double> finishes;
    for (const StepId id : ids) finishes.push_back(timeline.steps[id.index].finish.value);
    return finishes;
  };
  const Platform both =
      PlatformBuilder(1).link(0, 1, 1e9).slow_down(0, {1, 2}).slow_down_memory_bound(0, {1, 4}).compute_streams(0, 3);
  // A copy of 5 s. The second kernel has run 3 of 4 s of its slow time by then, and a quarter of it is left.
  CHECK(simulate(both) == std::vector<double>{2, 5.25, 4, 2});
  const Platform only = PlatformBuilder(1).link(0, 1, 1e9).slow_down_memory_bound(0, {1, 4}).compute_streams(0, 3);
  CHECK(simulate(only) == std::vector<double>{1, 5, 4, 1});
  const Platform alike = PlatformBuilder(1).link(0, 1, 1e9).slow_down(0, {1, 2}).compute_streams(0, 3);
  CHECK(simulate(alike) == std::vector<double>{2, 4, 2, 2});
}

TEST_CASE("a step without a route on a copy stream is a delay that transfers do not slow down", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(1).link(0, 1, 1e9).slow_down(0, {1, 2});
  Steps steps;
  steps.copy(0, down, 0, 1, GB);
  const StepId delay = steps.timed(0, way::host_to_device, 3);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[delay.index].finish == Seconds{3});
}

TEST_CASE("a ring all-reduce by steps takes 2(n-1)(alpha + S/(n B))", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  constexpr double alpha = 2e-6, bandwidth = 100e9;
  for (const std::uint32_t n : {2u, 3u, 8u, 24u}) {
    const std::int64_t share = GB / n;
    PlatformBuilder ring(n, 0);
    for (std::uint32_t d = 0; d < n; ++d) ring.link(d, (d + 1) % n, bandwidth, alpha);
    Steps steps;
    std::vector<StepId> last(n);
    for (std::uint32_t round = 0; round < 2 * (n - 1); ++round) {
      std::vector<StepId> sent(n);
      for (std::uint32_t d = 0; d < n; ++d) {
        std::vector<StepId> waits;
        if (round > 0) waits.push_back(last[(d + n - 1) % n]);
        sent[d] = steps.copy(d, {place::device, MemoryId{(d + 1) % n}}, d, (d + 1) % n, share, waits);
      }
      last = sent;
    }
    const Timeline timeline = engine.simulate(steps.builder.finish(), ring);
    const double expected = 2 * (n - 1) * (alpha + static_cast<double>(share) / bandwidth);
    CHECK(timeline.makespan.value == Approx(expected).epsilon(1e-13));
  }
}

TEST_CASE("an empty schedule takes no time", "[engine]") {
  const Engine engine = any_engine();
  INFO(engine.name);
  const Timeline timeline = engine.simulate(ScheduleBuilder{}.finish(), PlatformBuilder(1));
  CHECK(timeline.makespan == Seconds{0});
  CHECK(timeline.peaks.size() == 2);
}
