// Peaks under any timing: against all orders of events on small schedules, and against both engines on large ones.

#include "sim/bound/guaranteed_peak.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "sim/judge/workspace_memories.h"
#include "tests/engine/engines.h"
#include "tests/engine/small_platform.h"
#include "tests/generate/random.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Goes through every order in which steps may start and finish, one at a time, and keeps the fullest moment of a
/// memory. What has happened is how far each step is: 0, 1 (runs) or 2 (is over).
class EveryOrder {
 public:
  EveryOrder(const Schedule& schedule, const Platform& platform, MemoryId memory)
      : schedule_(schedule), memory_(memory), workspace_of_(workspace_memories(schedule, platform)) {
    go_on(std::vector<int>(schedule.steps.size(), 0));
  }

  Bytes peak() const { return peak_; }

 private:
  void go_on(const std::vector<int>& state) {
    if (!seen_.insert(state).second) return;
    peak_ = std::max(peak_, live_in(state));
    for (std::size_t s = 0; s < state.size(); ++s) {
      if (state[s] == 2 || (state[s] == 0 && !may_start(state, s))) continue;
      std::vector<int> next = state;
      ++next[s];
      go_on(next);
    }
  }

  bool may_start(const std::vector<int>& state, std::size_t s) const {
    const Step& step = schedule_.steps[s];
    for (std::size_t e = 0; e < s; ++e) {
      const std::span<const StepId> waits = schedule_.waits_of(step);
      const bool is_awaited = std::ranges::find(waits, id_at<StepId>(e)) != waits.end();
      if ((is_awaited || schedule_.steps[e].stream == step.stream) && state[e] < 2) return false;
    }
    return true;
  }

  /// Counted anew: a buffer is there from its step's start until the end of the step that frees it.
  Bytes live_in(const std::vector<int>& state) const {
    std::set<std::uint32_t> there;
    for (const BufferId b : schedule_.resident) there.insert(b.index);
    Bytes live;
    for (std::size_t s = 0; s < state.size(); ++s) {
      const Step& step = schedule_.steps[s];
      if (state[s] > 0) {
        for (const BufferId b : schedule_.buffers_in(step.allocates)) there.insert(b.index);
      }
      if (state[s] == 1 && workspace_of_[step.stream.index] == memory_) live += step.workspace;
    }
    for (std::size_t s = 0; s < state.size(); ++s) {
      if (state[s] < 2) continue;
      for (const BufferId b : schedule_.buffers_in(schedule_.steps[s].frees)) there.erase(b.index);
    }
    for (const std::uint32_t b : there) {
      if (schedule_.buffers[b].memory == memory_) live += schedule_.buffers[b].bytes;
    }
    return live;
  }

  const Schedule& schedule_;
  MemoryId memory_;
  std::vector<MemoryId> workspace_of_;
  std::set<std::vector<int>> seen_;
  Bytes peak_;
};

/// Each step a random number of times as long, by up to a million.
Schedule slowed_down(Schedule schedule, Random& random) {
  for (Step& step : schedule.steps) {
    const double times = std::pow(10, 6 * random.unit());
    step.work.seconds = times * step.work.seconds;
    step.work.bytes = static_cast<std::int64_t>(times) * step.work.bytes;
  }
  return schedule;
}

TEST_CASE("the guaranteed peak is the fullest moment of all orders of starts and finishes", "[guaranteed]") {
  std::size_t above = 0;  // those that the simulation does not come to
  for (const RandomCase seed : fewer_cases(1, 1500)) {
    auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 2, .most_steps = 9});
    Random random(seed);
    for (Step& step : schedule.steps) {  // plain training's backward frees before it allocates
      if (random.chance(0.2)) step.workspace = Bytes{} - step.workspace;
    }
    const Timeline timeline = simulate_event(schedule, platform);
    for (std::size_t m = 0; m < platform.memories.size(); ++m) {
      INFO("seed " << seed << ", memory " << m);
      const Bytes guaranteed = guaranteed_peak(schedule, platform, id_at<MemoryId>(m));
      CHECK(guaranteed == EveryOrder(schedule, platform, id_at<MemoryId>(m)).peak());
      above += guaranteed > timeline.peaks[m].bytes ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(above > cases_of(std::size_t{150}));
}

TEST_CASE("no engine ever exceeds the guaranteed peak, however copies and ops are slowed down", "[guaranteed]") {
  for (const RandomCase seed : fewer_cases(1, 220)) {
    const auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 6, .most_steps = 200});
    std::vector<Bytes> guaranteed;
    for (std::size_t m = 0; m < platform.memories.size(); ++m) {
      guaranteed.push_back(guaranteed_peak(schedule, platform, id_at<MemoryId>(m)));
    }
    Random random(seed);
    for (int slowed = 0; slowed < 5; ++slowed) {
      for (const test::Engine& engine : {test::event_engine, test::simgrid_engine}) {
        if (slowed > 1 && std::string_view(engine.name) == "simgrid") continue;  // a process each
        INFO("seed " << seed << ", slowed down for the time " << slowed << ", " << engine.name);
        const Timeline timeline = engine.simulate(slowed > 0 ? slowed_down(schedule, random) : schedule, platform);
        for (std::size_t m = 0; m < guaranteed.size(); ++m) CHECK(timeline.peaks[m].bytes <= guaranteed[m]);
      }
    }
  }
}

TEST_CASE("a slower copy breaks the simulated peak, and not the guaranteed one", "[guaranteed]") {
  // A copy of 1 s leaves while the op of 2 s runs, so that the third op finds its 100 B free. Nobody waits for that.
  const Platform platform = test::PlatformBuilder(1).link(0, 1, 1e9);
  const auto made = [](std::int64_t copied) {
    test::Steps steps;
    const BufferId value = steps.buffer(0, 100), next = steps.buffer(0, 100);
    const StepId makes = steps.compute(0, 1, 0, {value});
    const StepId leaves = steps.copy(0, test::down, 0, 1, copied, {makes});
    steps.builder.free_after(leaves, value);
    steps.compute(0, 2);
    steps.compute(0, 1, 0, {next});
    return steps.builder.finish();
  };
  const Schedule as_planned = made(test::GB), slower = made(3 * test::GB);
  CHECK(simulate_event(as_planned, platform).peaks[0].bytes == Bytes{100});
  CHECK(simulate_event(slower, platform).peaks[0].bytes == Bytes{200});
  CHECK(guaranteed_peak(as_planned, platform, MemoryId{0}) == Bytes{200});
}

TEST_CASE("a schedule that waits for its copy guarantees what it simulates", "[guaranteed]") {
  const Platform platform = test::PlatformBuilder(1).link(0, 1, 1e9);
  test::Steps steps;
  const BufferId value = steps.buffer(0, 100), next = steps.buffer(0, 100);
  const StepId makes = steps.compute(0, 1, 0, {value});
  const StepId leaves = steps.copy(0, test::down, 0, 1, test::GB, {makes});
  steps.builder.free_after(leaves, value);
  steps.compute(0, 2);
  steps.compute(0, 1, 0, {next}, {leaves});
  CHECK(guaranteed_peak(steps.builder.finish(), platform, MemoryId{0}) == Bytes{100});
}

TEST_CASE("more bytes than an exact cut can count are those of streams that do not wait", "[guaranteed]") {
  constexpr std::int64_t many = std::int64_t{1} << 51;
  const auto peak = [](std::int64_t bytes) {
    test::Steps steps;
    const StepId first = steps.compute(0, 1, bytes, {});
    NewStep second{.stream = steps.builder.stream({0}, way::compute, 1), .workspace = {bytes}, .waits = {first}};
    steps.builder.add(second);
    return guaranteed_peak(steps.builder.finish(), test::PlatformBuilder(1).compute_streams(0, 2), MemoryId{0});
  };
  CHECK(peak(many / 2) == Bytes{many / 2});
  CHECK(peak(many) == Bytes{2 * many});
}

}  // namespace
}  // namespace plimsoll
