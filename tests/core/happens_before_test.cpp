// The order of steps against reachability by search, on random streams and waits.

#include "sim/judge/happens_before.h"

#include <catch2/catch.hpp>

#include "sim/lower/schedule_builder.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

Schedule random_order(std::uint64_t seed) {
  Random random(seed);
  ScheduleBuilder builder;
  const std::uint32_t streams = random.between(1, 6), steps = random.between(1, 60);
  const std::uint32_t computing = random.between(1, streams);
  const double waiting = random.unit();
  for (std::uint32_t s = 0; s < steps; ++s) {
    NewStep step;
    const std::uint32_t stream = random.below(streams);
    step.stream = builder.stream(DeviceId{stream}, stream < computing ? way::compute : way::device_to_host);
    for (std::uint32_t w = 0; s > 0 && w < 3 && random.chance(waiting); ++w) step.waits.push_back({random.below(s)});
    builder.add(step);
  }
  return builder.finish();
}

/// By step: which steps have finished when it starts, found by going back along streams and waits.
std::vector<std::vector<bool>> reachable(const Schedule& schedule) {
  std::vector<std::vector<bool>> before;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    std::vector<bool>& mine = before.emplace_back(schedule.steps.size(), false);
    const auto after = [&](std::size_t earlier) {
      mine[earlier] = true;
      for (std::size_t e = 0; e < earlier; ++e) {
        if (before[earlier][e]) mine[e] = true;
      }
    };
    for (std::size_t e = 0; e < s; ++e) {
      if (schedule.steps[e].stream == schedule.steps[s].stream) after(e);
    }
    for (const StepId wait : schedule.waits_of(schedule.steps[s])) after(wait.index);
  }
  return before;
}

TEST_CASE("what must have finished is what streams and waits lead back to, over any number of steps", "[check]") {
  for (const RandomCase seed : fewer_cases(1, 500)) {
    const Schedule schedule = random_order(seed);
    const std::vector<std::vector<bool>> expected = reachable(schedule);
    for (const std::size_t copy_entries : {std::size_t{0}, most_copy_entries}) {
      HappensBefore before(schedule, most_clock_entries, copy_entries);
      for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
        REQUIRE(before.next());
        for (std::size_t earlier = 0; earlier < schedule.steps.size(); ++earlier) {
          INFO("seed " << seed << ": step " << earlier << " before step " << s << ", entries of copies "
                       << copy_entries);
          REQUIRE(before.finished(id_at<StepId>(earlier)) == expected[s][earlier]);
        }
      }
    }
  }
}

TEST_CASE("an order that takes more clock entries than there may be is not followed", "[check]") {
  ScheduleBuilder builder;
  for (std::uint32_t s = 0; s < 20; ++s) {  // every step waits for the one before, on another stream
    builder.add({.stream = builder.stream(DeviceId{s}, way::compute),
                 .waits = s == 0 ? std::vector<StepId>{} : std::vector{StepId{s - 1}}});
  }
  NewStep last{.stream = builder.stream(DeviceId{20}, way::compute)};
  for (std::uint32_t s = 0; s < 20; ++s) last.waits.push_back({s});
  builder.add(last);
  const Schedule schedule = builder.finish();
  const auto steps_followed = [&](std::size_t entries) {
    HappensBefore before(schedule, entries);
    std::size_t steps = 0;
    while (steps < schedule.steps.size() && before.next()) ++steps;
    return steps;
  };
  CHECK(steps_followed(100) < 10);
  CHECK(steps_followed(20 * 22) == 21);
}

}  // namespace
}  // namespace plimsoll
