// Closed forms of collectives against the same collectives as flows on a platform, and folded schedules against
// schedules in which every rank is a device with streams of its own.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/lower/schedule_builder.h"
#include "sim/mesh/collective_times.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

struct Sent {
  std::uint32_t from = 0, to = 0;  ///< devices
  double bytes = 0;
};
/// What is sent at once: each rank has what it got in the rounds before.
using Rounds = std::vector<std::vector<Sent>>;
using Groups = std::vector<std::vector<std::uint32_t>>;  // devices

/// `in_step`: a round begins when the one before has ended, not only that of the rank.
Schedule as_flows(const Rounds& rounds, const Platform& platform, bool in_step) {
  ScheduleBuilder builder;
  std::map<std::uint32_t, std::vector<StepId>> last;  // by device: its steps of the round before
  std::vector<StepId> all_last;
  for (const std::vector<Sent>& round : rounds) {
    std::map<std::uint32_t, std::vector<StepId>> now;
    std::vector<StepId> all_now;
    for (const Sent& each : round) {
      const MemoryId from = platform.devices[each.from].memory, to = platform.devices[each.to].memory;
      NewStep step;
      step.kind = StepKind::send;
      step.stream = builder.stream(id_at<DeviceId>(each.from), {place::device, to});
      step.work = {{}, Bytes{static_cast<std::int64_t>(each.bytes)}, builder.route(from, to)};
      step.waits = in_step ? all_last : last[each.from];
      const StepId id = builder.add(step);
      now[each.from].push_back(id);
      now[each.to].push_back(id);
      all_now.push_back(id);
    }
    last = std::move(now);
    all_last = std::move(all_now);
  }
  return builder.finish();
}

Rounds behind(Rounds one, const Rounds& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

/// n - 1 rounds of a share each, to a neighbour or, where each rank has something for every other one, ever further.
Rounds ring(const Groups& groups, double bytes, bool to_all = false) {
  const std::size_t n = groups.front().size();
  Rounds made(n - 1);
  for (std::size_t k = 0; k + 1 < n; ++k) {
    for (const auto& group : groups) {
      for (std::size_t r = 0; r < n; ++r) {
        made[k].push_back({group[r], group[(r + (to_all ? k + 1 : 1)) % n], bytes / static_cast<double>(n)});
      }
    }
  }
  return made;
}

/// Partners at half the distance each time exchange half as much.
Rounds halves(const Groups& groups, double bytes) {
  Rounds made;
  for (std::size_t distance = groups.front().size() / 2; distance > 0; distance /= 2) {
    bytes /= 2;
    std::vector<Sent>& round = made.emplace_back();
    for (const auto& group : groups) {
      for (std::size_t r = 0; r < group.size(); ++r) round.push_back({group[r], group[r ^ distance], bytes});
    }
  }
  return made;
}

Rounds reversed(Rounds rounds) {
  std::ranges::reverse(rounds);
  return rounds;
}

/// One after the other, since all leave the first rank over its link.
Rounds scattered(const Groups& groups, double bytes) {
  const std::size_t n = groups.front().size();
  Rounds made(n - 1);
  for (std::size_t k = 1; k < n; ++k) {
    for (const auto& group : groups) made[k - 1].push_back({group[0], group[k], bytes / static_cast<double>(n)});
  }
  return made;
}

/// By rings or halves within equal groups that all exchange at once; nothing where halves are no way.
std::optional<Rounds> flat(CollectiveWay way, CollectiveKind kind, const Groups& groups, double bytes) {
  using enum CollectiveKind;
  if (way == CollectiveWay::ring) {
    const Rounds around = ring(groups, bytes);
    if (kind == all_to_all) return ring(groups, bytes, true);
    if (kind == broadcast) return behind(scattered(groups, bytes), around);
    return kind == all_reduce ? behind(around, around) : around;
  }
  if (kind == all_to_all || kind == broadcast) return std::nullopt;
  const Rounds down = halves(groups, bytes), up = reversed(down);
  return kind == all_reduce ? behind(down, up) : kind == reduce_scatter ? down : up;
}

double seconds_of(const Rounds& rounds, const Platform& platform, bool in_step = false) {
  const Schedule schedule = as_flows(rounds, platform, in_step);
  const double event = simulate_event(schedule, platform).makespan.value;
  CHECK(simulate_simgrid(schedule, platform).makespan.value == Approx(event).epsilon(1e-6));
  return event;
}

constexpr CollectiveWay flat_ways[] = {CollectiveWay::ring, CollectiveWay::halving};

/// Within nodes, then between those of each node that have the same share, then within nodes again: the fastest.
double seconds_by_levels(CollectiveKind kind, const Groups& within, const Groups& between, double bytes,
                         const Platform& platform) {
  using enum CollectiveKind;
  const double share = bytes / static_cast<double>(within.front().size());
  double least = std::numeric_limits<double>::infinity();
  for (const CollectiveWay inner_way : flat_ways) {
    const Rounds inner = *flat(inner_way, kind == all_gather ? all_gather : reduce_scatter, within, bytes);
    for (const CollectiveWay outer_way : flat_ways) {
      const Rounds outer = *flat(outer_way, kind, between, share);
      Rounds made = kind == all_gather ? behind(outer, inner) : behind(inner, outer);
      if (kind == all_reduce) made = behind(made, *flat(inner_way, all_gather, within, bytes));
      least = std::min(least, seconds_of(made, platform));
    }
  }
  return least;
}

/// A device for each rank: that of stage s and rank r is s * ranks + r. All do what the one does that stands for them.
Schedule unfolded(const Schedule& of, const Platform& folded, const Platform& whole, std::uint32_t ranks) {
  ScheduleBuilder builder;
  std::map<MemoryId, std::uint32_t> device_of;
  for (std::uint32_t d = 0; d < folded.devices.size(); ++d) device_of[folded.devices[d].memory] = d;
  const auto memory = [&](MemoryId id, std::uint32_t r) {
    return relative_name(id) ? id : whole.devices[device_of.at(id) * ranks + r].memory;
  };
  std::vector<std::vector<BufferId>> buffers(ranks);
  std::vector<std::vector<StepId>> steps(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (Buffer buffer : of.buffers) {
      buffer.memory = memory(buffer.memory, r);
      buffers[r].push_back(builder.buffer(buffer));
    }
    for (const BufferId b : of.resident) builder.resident(buffers[r][b.index]);
  }
  for (const Step& step : of.steps) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const auto own = [&](Slice slice) {
        std::vector<BufferId> made;
        for (const BufferId b : of.buffers_in(slice)) made.push_back(buffers[r][b.index]);
        return made;
      };
      const Stream& stream = of[step.stream];
      NewStep copy;
      copy.kind = step.kind;
      copy.stream = builder.stream(DeviceId{stream.device.index * ranks + r},
                                   {memory(stream.way.from, r), memory(stream.way.to, r)}, step.stream.index);
      copy.op = step.op;
      copy.work = step.work;
      if (step.work.is_transfer()) {
        const Endpoints& ends = of.routes[step.work.route.index];
        copy.work.route = builder.route(memory(ends.from, r), memory(ends.to, r));
      }
      copy.workspace = step.workspace;
      copy.reads = own(step.reads);
      copy.writes = own(step.writes);
      copy.allocates = own(step.allocates);
      for (const StepId w : of.waits_of(step)) copy.waits.push_back(steps[r][w.index]);
      steps[r].push_back(builder.add(copy));
      for (const BufferId b : own(step.frees)) builder.free_after(steps[r].back(), b);
    }
  }
  return builder.finish();
}

/// Each device on a link of its own, which nobody else's copies go over.
Platform own_links(std::uint32_t count) {
  Platform platform = gpus({.count = count, .to_host = {25e9}, .to_peers = BytesPerSecond{100e9}});
  for (Device& device : platform.devices) {
    device.peak["bf16"] = {100e12};
    device.memory_bandwidth = {1000e9};
    device.launch_overhead = Seconds{3e-6};
    device.takes_trace_times = false;
  }
  return platform;
}

}  // namespace

TEST_CASE("collectives as flows take what their closed forms say, within 2 %", "[hybrid]") {
  using enum CollectiveKind;
  std::size_t compared = 0;
  for (const char* name : {"h100_sxm_8", "ib_2x8_h100", "a100_sxm_64"}) {
    const Platform platform = load_platform(name);
    const auto count = static_cast<std::uint32_t>(platform.devices.size());
    const auto closed = [&](CollectiveWay way, CollectiveKind kind, std::int64_t bytes) {
      auto times = CollectiveTimes::on(platform, {{{"all", count, false, way}}});
      constexpr std::uint32_t axis = 0;
      return std::get<CollectiveTimes>(times).seconds(kind, Bytes{bytes}, std::span(&axis, 1)).value;
    };
    Groups whole(1), within, between(8);
    for (std::uint32_t d = 0; d < count; ++d) {
      whole.front().push_back(d);
      if (d % 8 == 0) within.emplace_back();
      within.back().push_back(d);
      between[d % 8].push_back(d);
    }
    for (const CollectiveKind kind : {all_reduce, reduce_scatter, all_gather, all_to_all, broadcast}) {
      for (const std::int64_t bytes : {std::int64_t{1} << 16U, std::int64_t{1} << 23U, std::int64_t{1} << 30U}) {
        const auto size = static_cast<double>(bytes);
        double least = std::numeric_limits<double>::infinity();
        const auto compare = [&](CollectiveWay way, double flows) {
          CAPTURE(name, static_cast<int>(kind), bytes, static_cast<int>(way), flows);
          CHECK(closed(way, kind, bytes) == Approx(flows).epsilon(0.02));
          if (way != CollectiveWay::levels || kind == all_reduce) least = std::min(least, flows);
          ++compared;
        };
        for (const CollectiveWay way : flat_ways) {
          // Rounds that differ would run into each other's links.
          const bool in_step = kind == all_to_all || kind == broadcast;
          const std::optional<Rounds> rounds = flat(way, kind, whole, size);
          if (rounds) compare(way, seconds_of(*rounds, platform, in_step));
        }
        const bool has_levels = count > 8 && kind != all_to_all && kind != broadcast;
        if (has_levels) {
          compare(CollectiveWay::levels, seconds_by_levels(kind, within, between, size, platform));
        }
        // Trees, whose pieces follow each other, are no row of rounds: with them it may take less.
        CHECK(closed(CollectiveWay::fastest, kind, bytes) <= least * 1.02);
      }
    }
  }
  CHECK(compared == 90);
}

TEST_CASE("folded schedules take the time and memory of schedules of all ranks", "[hybrid]") {
  struct Shape {
    const char* strategy;
    std::uint32_t ranks, stages;
  };
  for (const Shape& shape :
       {Shape{"megatron(tensor=2)|data_parallel(ranks=2)|1f1b(stages=2)", 4, 2},
        Shape{"megatron(tensor=2,sequence=yes)|zero1(ranks=4)|1f1b(stages=2)", 8, 2},
        Shape{"megatron(tensor=4)|zero2(ranks=2)|interleaved(stages=2)|rotor", 8, 2},
        Shape{"megatron(tensor=2)|zero3(ranks=2)|1f1b(stages=2)|selective", 4, 2},
        Shape{"megatron(tensor=4)|zero3(ranks=2)", 8, 1}, Shape{"hsm2dl(devices=8)|zb_h1(stages=2)", 8, 2}}) {
    CAPTURE(shape.strategy);
    const Platform whole = own_links(shape.ranks * shape.stages);
    const std::vector<Pass> passes = parse_spec(shape.strategy, "test");
    const Problem problem = transformed(
        problem_of(
            synthetic_model("transformer:layers=4,width=256,heads=4,sequence=64,batch=8,vocabulary=512,view=graph"),
            whole, {.micro_batches = 16, .optimizer = Optimizer::adam, .backward = backward_for(passes)}),
        passes);
    REQUIRE(problem.platform.devices.size() == shape.stages);
    const PlanOutcome outcome = plan(problem, passes, std::nullopt);
    REQUIRE(std::holds_alternative<Plan>(outcome));
    const Schedule& folded = std::get<Plan>(outcome).schedule;
    const Schedule all = unfolded(folded, problem.platform, whole, shape.ranks);
    CHECK(all.steps.size() == shape.ranks * folded.steps.size());
    const Timeline one = simulate_event(folded, problem.platform), every = simulate_event(all, whole);
    CHECK(every.makespan.value == Approx(one.makespan.value).epsilon(1e-9));
    CHECK(simulate_simgrid(all, whole).makespan.value == Approx(one.makespan.value).epsilon(1e-9));
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      const Bytes peak = one.peaks[problem.platform.devices[s].memory.index].bytes;
      CHECK(peak > Bytes{0});
      for (std::uint32_t r = 0; r < shape.ranks; ++r) {
        CHECK(every.peaks[whole.devices[s * shape.ranks + r].memory.index].bytes == peak);
      }
    }
  }
}
