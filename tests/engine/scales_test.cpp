// Times from nanoseconds to months, worked out by hand, for both engines and the naive simulator.

#include <catch2/catch.hpp>

#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"

using namespace plimsoll;
using namespace plimsoll::test;

TEST_CASE("a chain of steps takes its sum at every scale, and SimGrid comes to an end", "[engine][scales]") {
  const Engine engine = any_simulator();
  for (const double unit : {1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e7}) {
    INFO(engine.name << ", unit " << unit);
    Steps steps;
    for (int i = 0; i < 16; ++i) steps.compute(0, 0.5003 * unit);
    for (int i = 0; i < 16; ++i) steps.compute(0, 0.9997 * unit);
    const Timeline timeline = engine.simulate(steps.builder.finish(), PlatformBuilder(1));
    CHECK(timeline.makespan.value == Approx(24 * unit).epsilon(1e-13));
  }
}

// Three GPUs share 3 B a unit of time: copies of 1, 2 and 3 units' bytes end at 1, 5/3 and 2 units, and kernels beside
// them run at half speed until then.
TEST_CASE("copies that share links and slow kernels down scale with the unit of time", "[engine][scales]") {
  const Engine engine = any_simulator();
  for (const double unit : {1e-9, 1e-5, 1.0, 1e4, 1e7}) {
    INFO(engine.name << ", unit " << unit);
    constexpr std::int64_t third = 1'000'000;
    PlatformBuilder platform(3, 1, 1);
    for (std::uint32_t d = 0; d < 3; ++d) platform.link(d, 4, 100 * third / unit).slow_down(d, {1, 2});
    platform.link(4, 3, 3 * third / unit);
    Steps steps;
    for (std::uint32_t d = 0; d < 3; ++d) {
      steps.copy(d, way::device_to_host, d, 3, (d + 1) * third);
      steps.compute(d, 2 * unit);
    }
    const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
    const double ends[] = {1.0, 5.0 / 3, 2.0};
    for (std::size_t d = 0; d < 3; ++d) {
      CHECK(timeline.steps[2 * d].finish.value == Approx(ends[d] * unit).epsilon(1e-12));
      CHECK(timeline.steps[2 * d + 1].finish.value == Approx((2 + ends[d] / 2) * unit).epsilon(1e-12));
    }
  }
}

TEST_CASE("a step of a nanosecond after months, and months after it, are both there", "[engine][scales]") {
  const Engine engine = any_simulator();
  INFO(engine.name);
  const Platform platform = PlatformBuilder(2).link(0, 2, 1e9).link(1, 2, 1e9);
  Steps steps;
  const StepId first = steps.copy(0, way::device_to_host, 0, 2, 1);  // 1 ns
  const StepId second = steps.compute(1, 1e-9, {first});
  const StepId months = steps.compute(1, 1e7, {second});
  std::vector<StepId> last{months};
  for (int i = 0; i < 1000; ++i) last = {steps.copy(0, way::device_to_host, 0, 2, 1'000'000, last)};
  const Timeline timeline = engine.simulate(steps.builder.finish(), platform);
  CHECK(timeline.steps[first.index].finish.value == Approx(1e-9).epsilon(1e-12));
  CHECK(timeline.steps[second.index].finish.value == Approx(2e-9).epsilon(1e-12));
  CHECK(timeline.makespan.value == Approx(1e7 + 1).epsilon(1e-12));
}
