// What copies and updates share on a host, worked out by hand, for both engines and the naive simulator.

#include <catch2/catch.hpp>

#include "sim/core/optimizer.h"
#include "sim/measure/contention.h"
#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

StepId update(Steps& steps, std::uint32_t device, double seconds, std::vector<StepId> waits = {}) {
  return steps.timed(device, way::on_host, seconds, std::move(waits));
}

}  // namespace

TEST_CASE("two GPUs that offload to one host share its memory's bandwidth", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  // Each has 1 GB/s of its own; the host's memory takes 0.1 GB/s.
  const Platform platform = PlatformBuilder(2).link(0, 2, 1e9).link(1, 2, 1e9).host(2, 1e8);
  Steps steps;
  steps.copy(0, down, 0, 2, GB);
  steps.copy(1, down, 1, 2, GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[0].finish.value == Approx(20).epsilon(1e-12));
  CHECK(timeline.steps[1].finish.value == Approx(20).epsilon(1e-12));
}

TEST_CASE("reads and writes of a host's memory are one traffic, and a lone copy is bounded by it", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  // A full-duplex link of 3 GB/s each way, a memory of 4 GB/s: 2 GB/s each way, and 3 for what is left alone.
  const Platform platform = PlatformBuilder(1).link(0, 1, 3e9).host(1, 4e9);
  Steps steps;
  steps.copy(0, down, 0, 1, 2 * GB);
  steps.copy(0, up, 1, 0, 5 * GB);
  const Timeline both = engine.simulate(steps.builder.finish(), platform);
  CHECK(both.steps[0].finish.value == Approx(1).epsilon(1e-12));
  CHECK(both.steps[1].finish.value == Approx(2).epsilon(1e-12));
  Steps alone;
  alone.copy(0, down, 0, 1, 2 * GB);
  const Platform narrow = PlatformBuilder(1).link(0, 1, 3e9, 0.5).host(1, 1e9);
  CHECK(engine.simulate(alone.builder.finish(), narrow).makespan.value == Approx(2.5).epsilon(1e-12));
}

TEST_CASE("a copy from host to disk loads the memory of both, a device's own memory binds nobody", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  // gpu, host of 3 GB/s, disk of 1 GB/s: the disk takes 1 GB/s, which leaves 2 for the GPU's copy over 10 GB/s.
  Platform platform = PlatformBuilder(1, 2).link(0, 1, 10e9).link(1, 2, 10e9).host(1, 3e9).host(2, 1e9);
  platform.memories[0].bandwidth = BytesPerSecond{1};
  Steps steps;
  steps.copy(0, way::host_to_disk, 1, 2, 2 * GB);
  steps.copy(0, down, 0, 1, 4 * GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[0].finish.value == Approx(2).epsilon(1e-12));
  CHECK(timeline.steps[1].finish.value == Approx(2).epsilon(1e-12));
}

TEST_CASE("updates on one host share its processor, on two hosts they do not", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  for (const bool states_a_rate : {true, false}) {
    const std::optional<double> adam = states_a_rate ? std::optional<double>(1e9) : std::nullopt;
    const auto simulate = [&](std::uint32_t hosts) {
      PlatformBuilder platform(2, hosts);
      platform.link(0, 2, 1e9).link(1, 1 + hosts, 1e9).host(2, {}, adam).host(1 + hosts, {}, adam);
      Steps steps;
      update(steps, 0, 1);
      update(steps, 1, 3);
      return engine.simulate(steps.builder.finish(), platform);
    };
    const Timeline one = simulate(1), two = simulate(2);
    CHECK(one.steps[0].finish.value == Approx(2).epsilon(1e-12));  // half each; then 2 s are left for one alone
    CHECK(one.steps[1].finish.value == Approx(4).epsilon(1e-12));
    CHECK(two.steps[0].finish == Seconds{1});
    CHECK(two.steps[1].finish == Seconds{3});
  }
}

TEST_CASE("an update loads its host's memory, max-min fairly beside copies", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  // Adam at 1 GB/s of parameters moves 7 GB/s of a memory of 8; a copy of 4 GB/s beside it: 4 each. An update of 2 s,
  // 14 GB, takes 3.5 s then.
  const Platform platform = PlatformBuilder(1).link(0, 1, 4e9).host(1, 8e9, 1e9);
  Steps steps;
  const StepId updated = update(steps, 0, 2);
  const StepId copied = steps.copy(0, down, 0, 1, 40 * GB);
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[updated.index].finish.value == Approx(3.5).epsilon(1e-12));
  CHECK(timeline.steps[copied.index].finish.value == Approx(10).epsilon(1e-12));
}

TEST_CASE("an update alone takes its seconds to the bit, whatever the host", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  for (const std::optional<double> bandwidth : {std::optional<double>(), std::optional<double>(3.3e9)}) {
    const Platform platform = PlatformBuilder(1).link(0, 1, 4e9).host(1, bandwidth, 1.1e9);
    Steps steps;
    update(steps, 0, 0.1);
    CHECK(engine.simulate(steps.builder.finish(), platform).makespan.value == Approx(0.1).epsilon(1e-15));
  }
}

TEST_CASE("the traffic of updates is Adam's, and no more than the memory's bandwidth", "[host]") {
  CHECK(adam_moves == static_cast<double>(optimizer_moves(Optimizer::adam)));
  Memory memory;
  CHECK(!update_traffic(memory));
  memory.adam = BytesPerSecond{10};
  CHECK(update_traffic(memory) == BytesPerSecond{70});
  memory.bandwidth = BytesPerSecond{100};
  CHECK(update_traffic(memory) == BytesPerSecond{70});
  memory.bandwidth = BytesPerSecond{35};
  CHECK(update_traffic(memory) == BytesPerSecond{35});
}

TEST_CASE("a host's memory that all its copies together cannot fill is none of the engines' business",
          "[engine][host]") {
  const auto links = [](double bandwidth) {
    const Platform platform = PlatformBuilder(2).link(0, 2, 1e9).link(1, 2, 1e9).host(2, bandwidth, 1e8);
    Steps steps;
    for (const std::uint32_t device : {0u, 1u}) {
      steps.copy(device, down, device, 2, GB);
      steps.copy(device, up, 2, device, GB);
      update(steps, device, 1);
    }
    const Schedule schedule = steps.builder.finish();
    return std::pair(flatten(schedule, platform).links.size(), memories_that_may_bind(schedule, platform).size());
  };
  // Four directions of 1 GB/s, and 0.7 GB/s of updates; what is left is the processor, which two devices share.
  CHECK(links(4.7e9) == std::pair<std::size_t, std::size_t>(1, 0));
  CHECK(links(4.69e9) == std::pair<std::size_t, std::size_t>(6, 1));
}

TEST_CASE("links in a row that are as narrow as each other do not leave each other out", "[engine][host]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  // Two GPUs over one uplink of 1 GB/s into a memory of 1 GB/s.
  const Platform platform = PlatformBuilder(2, 1, 1).link(0, 3, 5e9).link(1, 3, 5e9).link(3, 2, 1e9).host(2, 1e9);
  Steps steps;
  steps.copy(0, down, 0, 2, GB);
  steps.copy(1, down, 1, 2, GB);
  CHECK(engine.simulate(steps.builder.finish(), platform).makespan.value == Approx(2).epsilon(1e-12));
}

TEST_CASE("without contention copies and updates have a host for themselves", "[engine][host][contention]") {
  const Platform platform = PlatformBuilder(2).link(0, 2, 4e9).link(1, 2, 4e9).host(2, 2e9, 1e9);
  Steps steps;
  update(steps, 0, 2);
  update(steps, 1, 2);
  steps.copy(0, down, 0, 2, 2 * GB);
  const Schedule schedule = steps.builder.finish();
  const Timeline alone = simulate_event(without_contention(schedule, platform), platform);
  CHECK(alone.steps[0].finish == Seconds{2});
  CHECK(alone.steps[1].finish == Seconds{2});
  CHECK(alone.steps[2].finish == Seconds{1});
  CHECK(simulate_event(schedule, platform).makespan.value == Approx(5).epsilon(1e-12));
}
