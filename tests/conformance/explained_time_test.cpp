// Where the time goes on each device, and the chain of steps that makes the makespan, in both engines. The oracles
// count from the timeline alone: instant by instant, each step's time alone from a run of that step alone, and the
// longest chain by trying all.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "sim/core/tolerance.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/measure/contention.h"
#include "sim/measure/critical_path.h"
#include "sim/measure/time_parts.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// A random schedule as a problem whose steps have no ops: kernels, copies, and updates on hosts.
RandomPlan random_steps(std::uint64_t seed) {
  RandomSchedule random = random_schedule({.seed = seed, .most_devices = 5, .most_steps = 60, .on_grid = false});
  RandomPlan made{{}, std::move(random.schedule)};
  made.problem.platform = std::move(random.platform);
  for (Step& step : made.schedule.steps) {
    step.op = no_op;
    const bool is_elsewhere = made.schedule[step.stream].way.computes_elsewhere();
    step.kind = step.work.is_transfer() ? StepKind::offload : is_elsewhere ? StepKind::update : StepKind::forward;
  }
  return made;
}

/// What a step takes with nothing else on the platform.
double alone(const RandomPlan& of, std::size_t s) {
  Schedule one = of.schedule;
  one.steps = {of.schedule.steps[s]};
  for (Slice* slice :
       {&one.steps[0].waits, &one.steps[0].reads, &one.steps[0].writes, &one.steps[0].allocates, &one.steps[0].frees}) {
    *slice = {};
  }
  return simulate_event(one, of.problem.platform).makespan.value;
}

bool has_device(const Schedule& schedule, std::uint32_t device) {
  return std::ranges::any_of(schedule.streams,
                             [&](const Stream& s) { return s.way == way::compute && s.device.index == device; });
}

/// Seconds in which a device computes, and in which it does nothing else that counts either; of both the contention.
struct Counted {
  double computing = 0, idle = 0, contention = 0, whole = 0;
};

/// Of schedules without sends and collectives: instants between two dates at which anything begins or ends.
Counted counted(const RandomPlan& of, const Timeline& timeline, std::uint32_t device) {
  std::vector<double> dates{0, timeline.makespan.value};
  for (const Interval& ran : timeline.steps) dates.insert(dates.end(), {ran.start.value, ran.finish.value});
  std::ranges::sort(dates);
  Counted sum;
  for (std::size_t d = 0; d + 1 < dates.size(); ++d) {
    const double length = dates[d + 1] - dates[d], middle = dates[d] + length / 2;
    if (!(length > 0)) continue;
    std::vector<std::size_t> computing, updating, copying;
    for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
      const Step& step = of.schedule.steps[s];
      const Stream& stream = of.schedule[step.stream];
      const bool runs = timeline.steps[s].start.value < middle && middle < timeline.steps[s].finish.value;
      if (!runs || stream.device.index != device) continue;
      if (step.work.is_transfer())
        copying.push_back(s);
      else if (stream.way.computes_elsewhere())
        (step.kind == StepKind::update ? updating : copying).push_back(s);
      else
        computing.push_back(s);
    }
    const auto beyond = [&](std::size_t s) {
      const double ran = (timeline.steps[s].finish - timeline.steps[s].start).value;
      return std::max(0.0, 1 - alone(of, s) / ran);
    };
    sum.whole += length;
    if (!computing.empty()) {
      for (const std::size_t s : computing) {
        sum.contention += length * beyond(s) / static_cast<double>(computing.size());
        sum.computing += length * (1 - beyond(s)) / static_cast<double>(computing.size());
      }
    } else if (!updating.empty() || !copying.empty()) {
      sum.contention += length * beyond(updating.empty() ? copying.front() : updating.front());
    } else {
      sum.idle += length;
    }
  }
  return sum;
}

/// The parts of a device by themselves.
struct Summed {
  double all = 0, idle = 0;
};
Summed summed(const DeviceTime& device) {
  Summed sum{device.contention.value, 0};
  for (const TimePart& part : device.parts) {
    CHECK(part.time.value >= 0);
    CHECK(part.kind != TimePartKind::imbalance);
    sum.all += part.time.value;
    if (part.kind == TimePartKind::fill_and_drain || part.kind == TimePartKind::waits) sum.idle += part.time.value;
  }
  return sum;
}

bool exchanges(const Schedule& schedule) {
  return std::ranges::any_of(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::send || step.kind == StepKind::collective;
  });
}

/// How many devices had contention.
std::size_t check_devices(const RandomPlan& of, const Timeline& timeline) {
  std::size_t contended = 0;
  const double rounding = model_tolerance * timeline.makespan.value;
  for (const DeviceTime& device : time_by_device(of.problem, of.schedule, timeline)) {
    CAPTURE(device.device.index);
    CHECK((has_device(of.schedule, device.device.index) || device.device.index == 0));
    const Summed sum = summed(device);
    CHECK(sum.all == Approx(timeline.makespan.value).epsilon(model_tolerance));
    if (exchanges(of.schedule)) continue;
    const Counted count = counted(of, timeline, device.device.index);
    CHECK(count.whole == Approx(timeline.makespan.value).epsilon(model_tolerance));
    CHECK(sum.idle == Approx(count.idle).margin(rounding));
    CHECK(device.contention.value == Approx(count.contention).epsilon(float_tolerance).margin(10 * rounding));
    contended += device.contention.value > float_tolerance * timeline.makespan.value ? 1 : 0;
  }
  return contended;
}

TEST_CASE("on every device the parts and the contention sum to the makespan, as one counts by instants",
          "[time_parts]") {
  std::size_t contended = 0;
  for (const RandomCase seed : fewer_cases(1, 300)) {
    const RandomPlan made = seed % 3 == 0 ? random_steps(seed) : random_plan(seed);
    INFO("event");
    contended += check_devices(made, simulate_event(made.schedule, made.problem.platform));
    INFO("simgrid");
    check_devices(made, simulate_simgrid(made.schedule, made.problem.platform));
  }
  if (all_cases()) CHECK(contended > cases_of(std::size_t{22}));
}

/// By step: those that it comes behind.
std::vector<std::vector<std::size_t>> before(const Schedule& schedule) {
  std::vector<std::vector<std::size_t>> all(schedule.steps.size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::size_t b = 0; b < s; ++b) {
      const auto waits = schedule.waits_of(schedule.steps[s]);
      const bool is_awaited = std::ranges::find(waits, id_at<StepId>(b)) != waits.end();
      if (schedule.steps[b].stream == schedule.steps[s].stream || is_awaited) all[s].push_back(b);
    }
  }
  return all;
}

/// The longest of all chains of steps that come behind each other.
double longest_chain(const Schedule& schedule, const Timeline& timeline) {
  const auto all = before(schedule);
  std::vector<double> until(all.size(), 0);
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (const std::size_t b : all[s]) until[s] = std::max(until[s], until[b]);
    until[s] += (timeline.steps[s].finish - timeline.steps[s].start).value;
  }
  return all.empty() ? 0 : std::ranges::max(until);
}

void check_chain(const Schedule& schedule, const Timeline& timeline) {
  const std::vector<StepId> chain = critical_path(schedule, timeline);
  REQUIRE(!chain.empty());
  const double makespan = timeline.makespan.value, rounding = 2 * model_tolerance * makespan;
  const auto all = before(schedule);
  double sum = 0, now = 0;
  for (std::size_t k = 0; k < chain.size(); ++k) {
    const Interval& ran = timeline.steps[chain[k].index];
    CHECK(ran.start.value == Approx(now).margin(rounding));
    const auto& earlier = all[chain[k].index];
    if (k > 0) CHECK(std::ranges::find(earlier, std::size_t{chain[k - 1].index}) != earlier.end());
    now = ran.finish.value;
    sum += (ran.finish - ran.start).value;
  }
  CHECK(now == Approx(makespan).margin(rounding));
  CHECK(sum == Approx(makespan).epsilon(model_tolerance));
  CHECK(sum == Approx(longest_chain(schedule, timeline)).epsilon(model_tolerance));
}

TEST_CASE("the critical path is a chain from start to end, and no chain is longer", "[time_parts]") {
  for (const RandomCase seed : fewer_cases(1, 400)) {
    const RandomPlan made = seed % 2 == 0 ? random_steps(seed) : random_plan(seed);
    check_chain(made.schedule, simulate_event(made.schedule, made.problem.platform));
    check_chain(made.schedule, simulate_simgrid(made.schedule, made.problem.platform));
  }
}

TEST_CASE("a longer step of the critical path makes the iteration as much longer", "[time_parts]") {
  for (const RandomCase seed : fewer_cases(1, 100)) {
    const RandomPlan made = random_steps(seed);
    Schedule schedule = without_contention(made.schedule, made.problem.platform);
    const Timeline timeline = simulate_event(schedule, made.problem.platform);
    const std::vector<StepId> chain = critical_path(schedule, timeline);
    const Seconds more = 0.25 * timeline.makespan;
    for (const StepId s : {chain.front(), chain[chain.size() / 2], chain.back()}) {
      schedule.steps[s.index].work.seconds += more;
      const Seconds longer = simulate_event(schedule, made.problem.platform).makespan;
      CHECK((longer - timeline.makespan).value == Approx(more.value).epsilon(model_tolerance));
      schedule.steps[s.index].work.seconds = schedule.steps[s.index].work.seconds - more;
    }
  }
}

}  // namespace
}  // namespace plimsoll
