// A simulation is a function: the same bits each time, whatever ran before, beside it, or in another process.

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"
#include "tests/generate/random_schedule.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

bool same_bits(const Timeline& a, const Timeline& b) {
  return a.steps == b.steps && a.makespan == b.makespan && a.peaks == b.peaks;
}

RandomSchedule some_schedule(std::uint64_t seed) {
  return random_schedule({.seed = seed, .most_devices = 8, .most_steps = 300});
}

/// Takes so long that its process can be interrupted.
Schedule long_schedule() {
  Steps steps;
  for (int s = 0; s < 300'000; ++s) steps.compute(0, 1);
  return steps.builder.finish();
}

}  // namespace

TEST_CASE("simulations after each other give the same bits", "[engine]") {
  const Engine engine = GENERATE(event_engine, simgrid_engine);
  INFO(engine.name);
  const RandomSchedule one = some_schedule(7), other = some_schedule(8);
  const Timeline first = engine.simulate(one.schedule, one.platform);
  for (int repeat = 0; repeat < 3; ++repeat) {
    static_cast<void>(engine.simulate(other.schedule, other.platform));
    CHECK(same_bits(first, engine.simulate(one.schedule, one.platform)));
  }
}

TEST_CASE("a forkserver gives the bits of a simulation of its own", "[engine]") {
  SimgridForkserver server;
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const RandomSchedule random = some_schedule(seed);
    CHECK(same_bits(server.simulate(random.schedule, random.platform),
                    simulate_simgrid(random.schedule, random.platform)));
  }
}

TEST_CASE("threads simulate at once, each with its forkserver", "[engine]") {
  constexpr std::size_t threads = 3;
  std::vector<SimgridForkserver> servers(threads);
  std::vector<int> agreeing(threads);
  const RandomSchedule random = some_schedule(42);
  const Timeline event = simulate_event(random.schedule, random.platform);
  const Timeline simgrid = simulate_simgrid(random.schedule, random.platform);
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int repeat = 0; repeat < 10; ++repeat) {
        agreeing[t] += same_bits(event, simulate_event(random.schedule, random.platform)) ? 1 : 0;
        agreeing[t] += same_bits(simgrid, servers[t].simulate(random.schedule, random.platform)) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  CHECK(agreeing == std::vector<int>(threads, 20));
}

TEST_CASE("the platform must have a route for each transfer", "[engine]") {
  const Engine engine = GENERATE(event_engine, simgrid_engine);
  INFO(engine.name);
  Steps steps;
  steps.copy(0, StreamKind::device_to_host, 0, 1, 1);
  const Schedule schedule = steps.builder.finish();
  CHECK_THROWS_WITH(engine.simulate(schedule, PlatformBuilder(1)),
                    "platform 'small' has no route from memory 'gpu0' to 'host0'");
}

TEST_CASE("the platform must have the compute streams of the schedule", "[engine]") {
  const Engine engine = GENERATE(event_engine, simgrid_engine);
  INFO(engine.name);
  Steps steps;
  steps.timed(0, StreamKind::compute, 1, {}, 0);
  steps.timed(0, StreamKind::compute, 1, {}, 1);
  const Schedule schedule = steps.builder.finish();
  CHECK_THROWS_WITH(engine.simulate(schedule, PlatformBuilder(1)),
                    "device 'gpu0' runs 1 compute stream(s) at once; the schedule has 2 there");
  CHECK(engine.simulate(schedule, PlatformBuilder(1).compute_streams(0, 2)).makespan == Seconds{1});
}

TEST_CASE("malformed schedules are broken promises", "[engine]") {
  Steps steps;
  steps.compute(0, 1);
  steps.compute(0, 1);
  const Schedule good = steps.builder.finish();
  const Platform platform = PlatformBuilder(1);
  const auto fails = [&](auto spoil) {
    Schedule bad = good;
    spoil(bad);
    CHECK_THROWS_AS(simulate_event(bad, platform), BrokenPromise);
  };
  fails([](Schedule& s) { s.steps[0].stream = {5}; });
  fails([](Schedule& s) { s.streams[0].device = {5}; });
  fails([](Schedule& s) { s.steps[0].work.seconds = {-1}; });
  fails([](Schedule& s) { s.steps[0].work.seconds = {0.0 / 0.0}; });
  fails([](Schedule& s) { s.steps[0].work.route = {0}; });
  fails([](Schedule& s) { s.steps[0].workspace = {-1}; });
  fails([](Schedule& s) { s.steps[0].allocates = {0, 1}; });
  fails([](Schedule& s) { s.resident = {BufferId{0}}; });
  fails([](Schedule& s) {
    s.wait_list = {StepId{1}};
    s.steps[0].waits = {0, 1};
  });
}

TEST_CASE("Ctrl-C ends the simulating process and is told apart from failure", "[engine]") {
  // A process group of its own: the signal goes to all of it, as from a terminal.
  const pid_t group = fork();
  REQUIRE(group >= 0);
  if (group == 0) {
    setpgid(0, 0);
    std::signal(SIGINT, SIG_IGN);  // as a sweep that ends cleanly
    std::thread([] {
      while (true) {
        usleep(20'000);
        kill(0, SIGINT);
      }
    }).detach();
    try {
      static_cast<void>(simulate_simgrid(long_schedule(), PlatformBuilder(1)));
    } catch (const SimulationInterrupted&) {
      _exit(3);
    } catch (...) {
      _exit(4);
    }
    _exit(5);
  }
  int status = 0;
  REQUIRE(waitpid(group, &status, 0) == group);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
}
