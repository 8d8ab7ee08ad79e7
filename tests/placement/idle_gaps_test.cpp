#include "strategies/placement/lists/insertion_schedule.h"

#include <catch2/catch.hpp>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

TEST_CASE("idle gaps give the first time that is long enough", "[placement]") {
  IdleGaps idle;
  idle.take(10, 10);
  idle.take(25, 5);
  CHECK(idle.earliest(0, 10) == 0);
  CHECK(idle.earliest(1, 10) == 30);
  CHECK(idle.earliest(12, 5) == 20);
  CHECK(idle.earliest(21, 5) == 30);
  CHECK(idle.earliest(0, 11) == 30);
  CHECK(idle.earliest(10, 0) == 20);
}

TEST_CASE("a gap that is just long enough is found among many", "[placement]") {
  IdleGaps idle;
  for (Nanoseconds k = 0; k < 400; ++k) idle.take(10 * k + 5, 5);
  CHECK(idle.earliest(1, 5) == 10);
  CHECK(idle.earliest(0, 6) == 4000);
}

TEST_CASE("idle gaps are those that looking at every nanosecond finds", "[placement]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    IdleGaps idle;
    std::vector<bool> is_busy(60'000, false);
    for (int op = 0; op < 1500; ++op) {
      const Nanoseconds ready = random.between(0, 9000), time = random.between(1, 6);
      Nanoseconds start = ready;
      for (Nanoseconds free = 0, at = start; free < time; ++at) {
        free = is_busy[static_cast<std::size_t>(at)] ? 0 : free + 1;
        start = at + 1 - free;
      }
      REQUIRE(idle.earliest(ready, time) == start);
      idle.take(start, time);
      for (Nanoseconds at = start; at < start + time; ++at) is_busy[static_cast<std::size_t>(at)] = true;
    }
  }
}

}  // namespace
}  // namespace plimsoll
