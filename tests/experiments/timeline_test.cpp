// Timelines for Perfetto and memory profiles.

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <set>
#include <sstream>

#include "experiments/export/memory_profile_file.h"
#include "experiments/export/perfetto.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random_schedule.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

struct SimulatedRun {
  Problem problem;
  Schedule schedule;
  Timeline timeline;
};

SimulatedRun run(Problem problem, const std::string& spec, std::optional<Bytes> budget = {}) {
  PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  Schedule schedule = std::move(std::get<Plan>(outcome).schedule);
  schedule.strategy = spec;
  Timeline timeline = simulate_event(schedule, problem.platform);
  return {std::move(problem), std::move(schedule), std::move(timeline)};
}

/// A random schedule as a problem: tensors of every kind in turn.
SimulatedRun random_run(std::uint64_t seed) {
  RandomSchedule random = random_schedule({.seed = seed, .most_devices = 5, .most_steps = 120, .on_grid = false});
  SimulatedRun made{{}, std::move(random.schedule), {}};
  made.problem.platform = std::move(random.platform);
  made.timeline = simulate_event(made.schedule, made.problem.platform);
  for (std::size_t b = 0; b < made.schedule.buffers.size(); ++b) {
    Buffer& buffer = made.schedule.buffers[b];
    buffer.tensor = id_at<TensorId>(b);
    const auto kind = static_cast<TensorKind>(b % (memory_kinds - 1));
    made.problem.graph.tensors.push_back({.name = "t" + std::to_string(b),
                                          .kind = kind,
                                          .bytes = buffer.bytes,
                                          .storage = id_at<StorageId>(b),
                                          .shape = {},
                                          .dtype = ""});
  }
  for (Step& step : made.schedule.steps) step.op = no_op;
  return made;
}

std::vector<Json> events(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST_CASE("the worked example's timeline, slice by slice and counter by counter", "[timeline]") {
  const SimulatedRun r = run(problem_of(worked_example(), gpus({})), "store_all");
  const Json trace = Json::parse(perfetto_timeline(r.problem, r.schedule, r.timeline, "plimsoll 0: \"quoted\""));
  CHECK(trace.begin().key() == "otherData");
  CHECK(trace["otherData"]["made_by"] == "plimsoll 0: \"quoted\"");
  CHECK(trace["displayTimeUnit"] == "ms");
  std::string slices;
  for (const Json& slice : events(trace, "X")) {
    slices += slice["cat"].get<std::string>() + " " + slice["ts"].dump() + "+" + slice["dur"].dump() + ", ";
  }
  // F1, F2, the loss and its backward (1 s together), B2, B1.
  CHECK(slices.starts_with("forward 0+1000000, forward 1000000+1000000, "));
  CHECK(slices.ends_with("backward 3000000+2000000, backward 5000000+2000000, "));
  std::int64_t peak = 0;
  for (const Json& counter : events(trace, "C")) {
    if (counter["name"] != "gpu0 memory" && counter["name"] != "gpu memory") continue;
    std::int64_t live = 0;
    for (const auto& [kind, bytes] : counter["args"].items()) live += bytes.get<std::int64_t>();
    peak = std::max(peak, live);
  }
  CHECK(peak == 22);
}

TEST_CASE("slices of a stream do not overlap, and what is copied has arrows", "[timeline]") {
  for (const RandomCase seed : random_cases(0, 29)) {
    INFO("seed " << seed);
    const SimulatedRun r = random_run(seed);
    const std::string text = perfetto_timeline(r.problem, r.schedule, r.timeline);
    const Json trace = Json::parse(text);
    std::map<int, double> free_from;
    const std::vector<Json> slices = events(trace, "X");
    REQUIRE(slices.size() == r.schedule.steps.size());
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const Json& slice = slices[s];
      CHECK(slice["args"]["step"] == s);
      CHECK(slice["ts"].get<double>() == Approx(1e6 * r.timeline.steps[s].start.value).margin(6e-4));
      double& free = free_from[slice["tid"]];
      CHECK(slice["ts"].get<double>() >= free - 1e-9 * free);
      free = slice["ts"].get<double>() + slice["dur"].get<double>();
    }
    std::set<int> threads, named;
    for (const Json& slice : slices) threads.insert(slice["tid"].get<int>());
    for (const Json& name : events(trace, "M")) {
      if (name["name"] == "thread_name") named.insert(name["tid"].get<int>());
    }
    CHECK(std::ranges::includes(named, threads));
    std::set<int> starts, ends;
    for (const Json& arrow : events(trace, "s")) starts.insert(arrow["id"].get<int>());
    for (const Json& arrow : events(trace, "f")) ends.insert(arrow["id"].get<int>());
    CHECK(starts == ends);
    // Inside of the slice that they mean, not where another one may end or begin; an instant has no inside.
    for (const char* end : {"s", "f"}) {
      for (const Json& arrow : events(trace, end)) {
        const auto holds = [&](const Json& slice) {
          const double from = slice["ts"], length = slice["dur"], at = arrow["ts"];
          if (slice["pid"] != arrow["pid"] || slice["tid"] != arrow["tid"]) return false;
          return length < 1.5e-3 ? at == from : at > from && at < from + length;
        };
        CHECK(std::ranges::any_of(slices, holds));
      }
    }
  }
}

TEST_CASE("memory by kind has the peaks of the engine and ends where it should", "[timeline]") {
  for (const RandomCase seed : random_cases(0, 99)) {
    INFO("seed " << seed);
    const SimulatedRun r = random_run(seed);
    std::vector<std::int64_t> peak(r.problem.platform.memories.size(), 0), last(peak), expected(peak);
    Seconds before;
    walk_memories(r.problem.graph, r.problem.platform, r.schedule, r.timeline,
                  [&](MemoryId memory, Seconds date, const BytesByKind& live) {
                    CHECK(date >= before);
                    before = date;
                    for (const std::int64_t bytes : live) CHECK(bytes >= 0);
                    last[memory.index] = sum(live);
                    peak[memory.index] = std::max(peak[memory.index], sum(live));
                  });
    for (std::size_t m = 0; m < peak.size(); ++m) CHECK(peak[m] == r.timeline.peaks[m].bytes.count);
    for (const BufferId b : r.schedule.resident) expected[r.schedule[b].memory.index] += r.schedule[b].bytes.count;
    for (const Step& step : r.schedule.steps) {
      for (const BufferId b : r.schedule.buffers_in(step.allocates)) {
        expected[r.schedule[b].memory.index] += r.schedule[b].bytes.count;
      }
      for (const BufferId b : r.schedule.buffers_in(step.frees)) {
        expected[r.schedule[b].memory.index] -= r.schedule[b].bytes.count;
      }
    }
    CHECK(last == expected);
  }
}

TEST_CASE("the memory profile is a table, and its JSON says what is in memory at the peak", "[timeline]") {
  const SimulatedRun r = run(problem_of(worked_example(), gpus({})), "store_all");
  std::istringstream csv(memory_profile_csv(r.problem, r.schedule, r.timeline, "made by a test"));
  std::string line;
  REQUIRE(std::getline(csv, line));
  CHECK(line == "# made by a test");
  REQUIRE(std::getline(csv, line));
  CHECK(line == "date_s,memory,live_bytes");
  std::int64_t peak = 0;
  while (std::getline(csv, line)) peak = std::max<std::int64_t>(peak, std::stoll(line.substr(line.rfind(',') + 1)));
  CHECK(peak == 22);

  const Json json = memory_peaks_json(r.problem, r.schedule, r.timeline);
  const Json& gpu = json["memories"][0];
  CHECK(gpu["peak_bytes"] == 22);
  CHECK(gpu["date_s"] == 3.0);  // B2 starts
  CHECK(gpu["bytes_by_kind"]["workspace"] == 1);
  CHECK(gpu["bytes_by_kind"]["input"] == 4);
  CHECK(gpu["bytes_by_kind"]["gradient"] == 5);
  CHECK(gpu["bytes_by_kind"]["activation"] == 12);
  std::int64_t bytes = gpu["bytes_by_kind"]["workspace"], before = bytes + 22;
  for (const Json& tensor : gpu["tensors"]) {
    CHECK(tensor["bytes"] <= before);
    before = tensor["bytes"];
    bytes += before;
  }
  CHECK(bytes == 22);
}

}  // namespace
}  // namespace plimsoll
