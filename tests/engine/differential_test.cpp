// The engines against each other, and against a simulator that is too simple to be wrong, on random schedules.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "tests/engine/naive_simulator.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

bool is_close(Seconds a, Seconds b) {
  return std::abs(a.value - b.value) <= 1e-9 * std::max(a.value, b.value);
}

std::string both(Seconds a, Seconds b) {
  std::ostringstream text;
  text.precision(17);
  text << ' ' << a.value << ' ' << b.value;
  return text.str();
}

/// The first difference, in words.
std::optional<std::string> difference(const Timeline& a, const Timeline& b, bool exact) {
  if (a.steps.size() != b.steps.size() || a.peaks.size() != b.peaks.size()) return "number of steps or memories";
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    const Interval &x = a.steps[s], &y = b.steps[s];
    const std::string step = "step " + std::to_string(s);
    if (!is_close(x.start, y.start)) {
      return step + " start" + both(x.start, y.start);
    }
    if (!is_close(x.finish, y.finish)) {
      return step + " finish" + both(x.finish, y.finish);
    }
    if (exact && (x.start_round != y.start_round || x.finish_round != y.finish_round)) return step + " rounds";
  }
  if (!is_close(a.makespan, b.makespan)) return "makespan" + both(a.makespan, b.makespan);
  if (!exact) return std::nullopt;
  for (std::size_t m = 0; m < a.peaks.size(); ++m) {
    if (a.peaks[m] != b.peaks[m]) {
      return "peak of memory " + std::to_string(m) + ": " + std::to_string(a.peaks[m].bytes.count) + " at step " +
             std::to_string(a.peaks[m].step.index) + ", " + std::to_string(b.peaks[m].bytes.count) + " at step " +
             std::to_string(b.peaks[m].step.index);
    }
  }
  return std::nullopt;
}

/// Sizes grow with the seed, so that the first failure is a small one.
RandomScheduleOptions options(std::uint64_t seed, std::uint32_t of, std::uint32_t most_steps) {
  const auto grown = [&](std::uint32_t most) { return static_cast<std::uint32_t>(most * seed / of); };
  return {.seed = seed,
          .most_devices = 1 + grown(24),
          .most_steps = 4 + grown(most_steps),
          .on_grid = seed % 2 == 0,
          .all_scales = seed % 4 == 1};
}

}  // namespace

TEST_CASE("the event engine agrees with a naive simulator", "[engine][differential]") {
  constexpr std::uint32_t cases = 2000;
  for (const RandomCase seed : fewer_cases(0, cases - 1)) {
    const RandomScheduleOptions chosen = options(seed, cases, 100);
    const RandomSchedule random = random_schedule(chosen);
    const Timeline naive = simulate_naively(random.schedule, random.platform);
    const Timeline event = simulate_event(random.schedule, random.platform);
    const std::optional<std::string> found = difference(naive, event, chosen.on_grid);
    INFO("seed " << seed << ", most_devices " << chosen.most_devices << ", most_steps " << chosen.most_steps);
    if (found) FAIL(*found);
  }
}

TEST_CASE("SimGrid and the event engine agree", "[engine][differential]") {
  constexpr std::uint32_t cases = 4000;
  SimgridForkserver server;
  for (const RandomCase seed : fewer_cases(0, cases - 1)) {
    const RandomScheduleOptions chosen = options(seed, cases, 400);
    const RandomSchedule random = random_schedule(chosen);
    const Timeline simgrid = server.simulate(random.schedule, random.platform);
    const Timeline event = simulate_event(random.schedule, random.platform);
    const std::optional<std::string> found = difference(simgrid, event, chosen.on_grid);
    INFO("seed " << seed << ", most_devices " << chosen.most_devices << ", most_steps " << chosen.most_steps);
    if (found) FAIL(*found);
  }
}
