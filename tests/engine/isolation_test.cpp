// A simulation is a function: the same bits each time, whatever ran before, beside it, or in another process.

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/isolated_run.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/engine/simgrid/simgrid_run.h"
#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

bool same_bits(const Timeline& a, const Timeline& b) {
  return a.steps == b.steps && a.makespan == b.makespan && a.peaks == b.peaks;
}

RandomSchedule some_schedule(std::uint64_t seed) {
  return random_schedule({.seed = seed, .most_devices = 8, .most_steps = 300});
}

/// Takes SimGrid so long that its process can be interrupted.
Schedule long_schedule() {
  Steps steps;
  for (int s = 0; s < 300'000; ++s) steps.compute(0, 1);
  return steps.builder.finish();
}

/// On which kernels are SimGrid's.
Platform slowed_platform() {
  return PlatformBuilder(1).slow_down(0, {1, 1.5});
}

/// By SimGrid, in a process of its own, whatever is shared.
Timeline isolated(const Program& program) {
  SharedMemory memory;
  run_isolated(program, memory);
  return read_timeline(memory, program.step_count(), program.resident.size());
}

/// Two devices that share a half-duplex uplink, one of them slowed down by copies; every seed has other durations.
RandomSchedule sharing_schedule(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto seconds = [&] { return static_cast<double>(random() % 1000 + 1) / 7; };
  Steps steps;
  std::vector<StepId> last;
  for (std::uint32_t device = 0; device < 2; ++device) {  // streams and routes in the same order for all seeds
    steps.compute(device, 1);
    steps.copy(device, way::device_to_host, device, 2, 1000);
    steps.copy(device, way::host_to_device, 2, device, 1000);
  }
  for (int s = 0; s < 60; ++s) {
    const auto device = static_cast<std::uint32_t>(random() % 2);
    std::vector<StepId> waits;
    if (!last.empty() && random() % 2 == 0) waits.push_back(last[random() % last.size()]);
    const std::int64_t bytes = 700 + static_cast<std::int64_t>(random() % 300);
    const bool out = random() % 2 == 0;
    const auto kind = out ? way::device_to_host : way::host_to_device;
    last.push_back(s % 3 == 0 ? steps.compute(device, seconds(), waits)
                              : steps.copy(device, kind, out ? device : 2, out ? 2 : device, bytes, waits));
  }
  const Platform platform =
      PlatformBuilder(2, 1, 1).link(0, 3, 40, 0.5).link(1, 3, 30, 0.25).link(3, 2, 35, 0, false).slow_down(0, {1, 1.5});
  return {platform, steps.builder.finish()};
}

/// Whether this version of SimGrid exports its clock.
bool clock_can_be_set_back() {
  simgrid();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libsimgrid.so") == std::string::npos) continue;
    void* const library = dlopen(line.substr(line.find('/')).c_str(), RTLD_NOW | RTLD_NOLOAD);
    return library != nullptr && dlsym(library, "_ZN7simgrid6kernel10EngineImpl4now_E") != nullptr;
  }
  return false;
}

/// The processes that a process has forked and that are still there.
std::vector<int> children_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/task/" + process + "/children");
  return {std::istream_iterator<int>(file), {}};
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
  for (const RandomCase seed : random_cases(100, 119)) {
    const RandomSchedule random = some_schedule(seed);
    CHECK(same_bits(server.simulate(random.schedule, random.platform),
                    simulate_simgrid(random.schedule, random.platform)));
  }
}

TEST_CASE("one process gives many simulations on one platform the bits of processes of their own", "[engine]") {
  SimgridForkserver server;
  const std::vector<int> mine = children_of(std::to_string(getpid()));
  REQUIRE(mine.size() == 1);
  std::set<int> simulating;
  for (const RandomCase seed : random_cases(0, 39)) {
    const RandomSchedule random = sharing_schedule(seed);
    INFO("seed " << seed);
    CHECK(same_bits(server.simulate(random.schedule, random.platform),
                    isolated(flatten(random.schedule, random.platform))));
    for (const int child : children_of(std::to_string(mine[0]))) simulating.insert(child);
  }
  if (all_cases()) CHECK(simulating.size() == (clock_can_be_set_back() ? 1 : 40));
  // Another platform is for another process, and so is what comes after it.
  const RandomSchedule other = some_schedule(3), again = sharing_schedule(3);
  REQUIRE(is_anything_shared(flatten(other.schedule, other.platform)));
  CHECK(same_bits(server.simulate(other.schedule, other.platform), isolated(flatten(other.schedule, other.platform))));
  CHECK(same_bits(server.simulate(again.schedule, again.platform), isolated(flatten(again.schedule, again.platform))));
}

TEST_CASE("where nothing is shared SimGrid is not asked, and would give the same bits", "[engine]") {
  std::size_t alone = 0;
  for (const RandomCase seed : random_cases(0, 2999)) {
    if (alone == 60) break;
    const RandomSchedule random =
        random_schedule({.seed = seed, .most_devices = 2, .most_steps = 80, .all_scales = seed % 2 == 0});
    const Program program = flatten(random.schedule, random.platform);
    if (is_anything_shared(program)) continue;
    ++alone;
    INFO("seed " << seed);
    CHECK(same_bits(simulate_simgrid(random.schedule, random.platform), isolated(program)));
  }
  if (all_cases()) CHECK(alone == 60);
  rusage before{}, after{};
  getrusage(RUSAGE_CHILDREN, &before);
  static_cast<void>(simulate_simgrid(long_schedule(), PlatformBuilder(1)));
  getrusage(RUSAGE_CHILDREN, &after);
  CHECK(after.ru_minflt == before.ru_minflt);  // no process has ended
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
  steps.copy(0, way::device_to_host, 0, 1, 1);
  const Schedule schedule = steps.builder.finish();
  CHECK_THROWS_WITH(engine.simulate(schedule, PlatformBuilder(1)),
                    "platform 'small' has no route from memory 'gpu0' to 'host0'");
}

TEST_CASE("the platform must have the compute streams of the schedule", "[engine]") {
  const Engine engine = GENERATE(event_engine, simgrid_engine);
  INFO(engine.name);
  Steps steps;
  steps.timed(0, way::compute, 1, {}, 0);
  steps.timed(0, way::compute, 1, {}, 1);
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
      static_cast<void>(simulate_simgrid(long_schedule(), slowed_platform()));
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
