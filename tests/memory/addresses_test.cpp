// Addresses planned with a schedule: what is live together by any order of events has bytes of its own.

#include "sim/memory/addresses.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/workspace_memories.h"
#include "tests/generate/random.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// What lies where at an instant of one timing.
struct Held {
  MemoryId memory;
  Bytes from, end;
};

/// Whether two of those that are there by the timeline share bytes, looked at after each start.
bool overlaps_in(const Schedule& schedule, const Platform& platform, const Addresses& addresses,
                 const Timeline& timeline) {
  const std::vector<MemoryId> workspaces = workspace_memories(schedule, platform);
  const auto is_over = [&](std::size_t s, const Interval& now) {
    const Interval& ran = timeline.steps[s];
    return std::pair(ran.finish, ran.finish_round) <= std::pair(now.start, now.start_round);
  };
  for (std::size_t at = 0; at < schedule.steps.size(); ++at) {
    const Interval& now = timeline.steps[at];
    std::set<std::uint32_t> there;
    std::vector<Held> held;
    for (const BufferId b : schedule.resident) there.insert(b.index);
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Interval& ran = timeline.steps[s];
      if (std::pair(ran.start, ran.start_round) > std::pair(now.start, now.start_round)) continue;
      const Step& step = schedule.steps[s];
      for (const BufferId b : schedule.buffers_in(step.allocates)) there.insert(b.index);
      const std::optional<Bytes>& workspace = addresses.of_workspace[s];
      if (is_over(s, now) || !workspace) continue;
      held.push_back({workspaces[step.stream.index], *workspace, *workspace + step.workspace});
    }
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      if (!is_over(s, now)) continue;
      for (const BufferId b : schedule.buffers_in(schedule.steps[s].frees)) there.erase(b.index);
    }
    for (const std::uint32_t b : there) {
      const std::optional<Bytes>& from = addresses.of_buffer[b];
      if (from) held.push_back({schedule.buffers[b].memory, *from, *from + schedule.buffers[b].bytes});
    }
    for (std::size_t a = 0; a < held.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (held[a].memory == held[b].memory && held[a].from < held[b].end && held[b].from < held[a].end) return true;
      }
    }
  }
  return false;
}

Schedule slowed_down(Schedule schedule, Random& random) {
  for (Step& step : schedule.steps) {
    const double times = random.between(1, 100);
    step.work.seconds = times * step.work.seconds;
    step.work.bytes = static_cast<std::int64_t>(times) * step.work.bytes;
  }
  return schedule;
}

TEST_CASE("addresses hold by any timing, and the judge says so", "[addresses]") {
  for (const RandomCase seed : fewer_cases(1, 300)) {
    INFO("seed " << seed);
    const auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 3, .most_steps = 60});
    const Addresses addresses = plan_addresses(schedule, platform, {});
    REQUIRE_FALSE(wrong_address(schedule, platform, addresses));
    Random random(seed);
    for (int slowed = 0; slowed < 4; ++slowed) {
      const Schedule timed = slowed > 0 ? slowed_down(schedule, random) : schedule;
      CHECK_FALSE(overlaps_in(timed, platform, addresses, simulate_event(timed, platform)));
    }
  }
}

TEST_CASE("every buffer and workspace of a device has an address, others have none", "[addresses]") {
  for (const RandomCase seed : fewer_cases(1, 100)) {
    INFO("seed " << seed);
    const auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 3, .most_steps = 60});
    const Addresses addresses = plan_addresses(schedule, platform, {});
    std::vector<bool> is_made(schedule.buffers.size());
    for (const BufferId b : schedule.resident) is_made[b.index] = true;
    for (const Step& step : schedule.steps) {
      for (const BufferId b : schedule.buffers_in(step.allocates)) is_made[b.index] = true;
    }
    for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      const bool is_in_device = platform[buffer.memory].device.has_value();
      CHECK(addresses.of_buffer[b].has_value() == (is_made[b] && is_in_device && buffer.bytes > Bytes{0}));
    }
    const std::vector<MemoryId> workspaces = workspace_memories(schedule, platform);
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      const bool is_in_device = platform[workspaces[step.stream.index]].device.has_value();
      CHECK(addresses.of_workspace[s].has_value() == (is_in_device && step.workspace > Bytes{0}));
    }
  }
}

TEST_CASE("the judge finds addresses that a timing breaks", "[addresses]") {
  std::size_t broken = 0, found = 0;
  for (const RandomCase seed : fewer_cases(1, 2200)) {
    INFO("seed " << seed);
    const auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 3, .most_steps = 60});
    Addresses addresses = plan_addresses(schedule, platform, {});
    Random random(seed);
    for (std::optional<Bytes>& at : addresses.of_buffer) {  // some go lower
      if (at && random.chance(0.2)) at = Bytes{random.below(static_cast<std::uint32_t>(at->count + 1))};
    }
    const bool is_wrong = wrong_address(schedule, platform, addresses).has_value();
    found += is_wrong ? 1 : 0;
    bool overlaps = false;
    for (int slowed = 0; slowed < 4; ++slowed) {
      const Schedule timed = slowed > 0 ? slowed_down(schedule, random) : schedule;
      overlaps = overlaps || overlaps_in(timed, platform, addresses, simulate_event(timed, platform));
    }
    broken += overlaps ? 1 : 0;
    if (overlaps) CHECK(is_wrong);
  }
  if (all_cases()) CHECK(broken > cases_of(std::size_t{220}));
  if (all_cases()) CHECK(found < cases_of(std::size_t{2090}));
}

TEST_CASE("an address outside its block is wrong", "[addresses]") {
  const auto [platform, schedule] = random_schedule({.seed = 3, .most_devices = 1, .most_steps = 60});
  Addresses addresses = plan_addresses(schedule, platform, {});
  addresses.blocks[0].size = addresses.blocks[0].size - Bytes{512};
  const std::optional<WrongAddress> wrong = wrong_address(schedule, platform, addresses);
  REQUIRE(wrong);
  CHECK(wrong->what.ends_with(" lies outside its block"));
}

TEST_CASE("what has no address in a block's memory is wrong, and is named", "[addresses]") {
  for (const RandomCase seed : fewer_cases(1, 100)) {
    INFO("seed " << seed);
    const auto [platform, schedule] = random_schedule({.seed = seed, .most_devices = 3, .most_steps = 60});
    Random random(seed);
    Addresses addresses = plan_addresses(schedule, platform, {});
    std::vector<std::optional<Bytes>>& some = random.chance(0.5) ? addresses.of_buffer : addresses.of_workspace;
    const std::uint32_t chosen = random.below(static_cast<std::uint32_t>(some.size()));
    if (!some[chosen]) continue;
    some[chosen] = std::nullopt;
    const std::optional<WrongAddress> wrong = wrong_address(schedule, platform, addresses);
    REQUIRE(wrong);
    CHECK(wrong->what.ends_with(" has no address"));
    const bool is_buffer = &some == &addresses.of_buffer;
    CHECK((is_buffer ? wrong->buffer.value().index : wrong->step.value().index) == chosen);
  }
}

}  // namespace
}  // namespace plimsoll
