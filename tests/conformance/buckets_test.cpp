// Gradients of copies that are all-reduced together: how many sums, when each begins, what they take and what they
// move.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "sim/engine/simgrid/simgrid_engine.h"
#include "tests/bad_input.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

constexpr double latency_s = 0.25, bandwidth = 8;

/// Stages with a parameter each, of these bytes, on so many devices.
Problem with_gradients(const std::vector<std::int64_t>& bytes, const std::string& spec, std::uint32_t devices,
                       std::uint32_t micro_batches, const Pieces& time) {
  const auto stages = static_cast<std::uint32_t>(bytes.size());
  Chain chain = equal_stages(stages, time);
  for (std::uint32_t s = 0; s < stages; ++s) {
    chain.stages[s].parameters = {s};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{bytes[s]}});
  }
  return problem_of(chain,
                    gpus({.count = devices, .to_peers = BytesPerSecond{bandwidth}, .peer_latency = Seconds{latency_s}}),
                    {.micro_batches = micro_batches,
                     .optimizer = Optimizer::none,
                     .backward = backward_for(parse_spec(spec, "test"))});
}

struct Ran {
  Plan plan;
  Timeline timeline;
};

/// Judged, and the same in both engines.
Ran run_buckets(const Problem& problem, const std::string& spec) {
  INFO(spec);
  Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
  const std::vector<Violation> violations = check(made.schedule, problem.graph, problem.platform);
  if (!violations.empty()) FAIL_CHECK(violations[0].what);
  Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.makespan == made.makespan);
  const Timeline simgrid = simulate_simgrid(made.schedule, problem.platform);
  CHECK(simgrid.makespan.value == Approx(timeline.makespan.value).epsilon(1e-9));
  CHECK(simgrid.peaks == timeline.peaks);
  Bytes most;
  for (std::size_t d = 0; d < problem.platform.devices.size(); ++d) most = std::max(most, timeline.peaks[d].bytes);
  CHECK(most == made.peak);
  return {std::move(made), std::move(timeline)};
}

Bytes bytes_moved(const Schedule& schedule) {
  Bytes moved;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::collective) moved += step.work.bytes;
  }
  return moved;
}

std::vector<Bytes> bytes_at_peak(const Timeline& timeline) {
  std::vector<Bytes> bytes;
  for (const auto& peak : timeline.peaks) bytes.push_back(peak.bytes);
  return bytes;
}

Bytes bytes_of_first_rank(const Schedule& schedule, const Collective& collective) {
  Bytes bytes;
  for (std::uint32_t v = 0; v < collective.values; ++v) bytes += schedule[collective.inputs[v]].bytes;
  return bytes;
}

TEST_CASE("n gradients that are there at once take ceil(n / k) times the latency in buckets of k", "[pipelining]") {
  constexpr std::int64_t size = 12;  // a whole number of bytes for each rank
  for (const std::uint32_t n : {1U, 2U, 5U, 12U}) {
    for (const std::uint32_t ranks : {2U, 3U, 4U}) {
      const std::string cut = "1f1b(cut=0x" + std::to_string(ranks);
      const Problem problem =
          with_gradients(std::vector<std::int64_t>(n, size), "1f1b", ranks, ranks, {.f = 1, .b = 0, .w = 0});
      const Ran alone = run_buckets(problem, cut + ")");
      const double rounds = 2.0 * (ranks - 1);
      const auto takes = [&](std::uint32_t sums) {
        return n + sums * rounds * latency_s + rounds * n * size / (ranks * bandwidth);
      };
      CHECK(alone.plan.schedule.collectives.size() == n);
      CHECK(alone.timeline.makespan.value == Approx(takes(n)).epsilon(1e-12));
      for (std::uint32_t k = 1; k <= n + 1; ++k) {
        for (const std::int64_t less : {0, 7}) {  // a bucket is full with the gradient that fills it or more
          INFO(n << " gradients on " << ranks << " devices, " << k << " in a bucket less " << less << " B");
          const std::string bytes = std::to_string(k * size - less) + "B";
          const Ran ran = run_buckets(problem, cut + ",buckets=" + bytes + ")");
          const std::uint32_t sums = (n + k - 1) / k;
          CHECK(ran.plan.schedule.collectives.size() == sums);
          CHECK(ran.timeline.makespan.value == Approx(takes(sums)).epsilon(1e-12));
          CHECK(bytes_moved(ran.plan.schedule) == bytes_moved(alone.plan.schedule));
          CHECK(bytes_at_peak(ran.timeline) == bytes_at_peak(alone.timeline));
        }
      }
    }
  }
}

/// When all copies have made what a collective sums.
Seconds complete(const Ran& ran, const Collective& collective) {
  const Schedule& schedule = ran.plan.schedule;
  Seconds last;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind != StepKind::backward) continue;
    for (const Slice& list : {schedule.steps[s].writes, schedule.steps[s].allocates}) {
      for (const BufferId b : schedule.buffers_in(list)) {
        if (std::ranges::find(collective.inputs, b) == collective.inputs.end()) continue;
        last = std::max(last, ran.timeline.steps[s].finish);
      }
    }
  }
  return last;
}

TEST_CASE("a bucket begins when its last gradient is complete on every copy", "[pipelining]") {
  const Problem problem = with_gradients({3, 3, 3, 3, 3}, "1f1b", 3, 5, {.f = 1, .b = 3, .w = 0});
  const Ran ran = run_buckets(problem, "1f1b(cut=0x3,buckets=6B)");
  const Schedule& schedule = ran.plan.schedule;
  REQUIRE(schedule.collectives.size() == 3);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind != StepKind::collective) continue;
    CHECK(ran.timeline.steps[s].start == complete(ran, schedule.collectives[schedule.steps[s].collective.index]));
  }
  // Two micro-batches of 5 (F + B) on two of the devices; the last gradients are the first two stages'.
  CHECK(complete(ran, schedule.collectives[0]) == Seconds{2 * 20 - 9});
  CHECK(complete(ran, schedule.collectives[1]) == Seconds{2 * 20 - 3});
  CHECK(complete(ran, schedule.collectives[2]) == Seconds{2 * 20});
  const Ran together = run_buckets(problem, "1f1b(cut=0x3,buckets=1GB)");
  CHECK(together.plan.schedule.collectives.size() == 1);
  CHECK(complete(together, together.plan.schedule.collectives[0]) == Seconds{2 * 20});
}

TEST_CASE("buckets of copies in any pipeline hold every gradient once and are full but for each part's last",
          "[pipelining]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t devices = 2 * random.between(1, 2);
    std::vector<std::int64_t> bytes(2 * devices + random.between(0, 6));
    for (std::int64_t& each : bytes) each = 4 * random.between(0, 6);  // divides by the ranks
    const std::uint32_t which = random.between(0, 3);
    const std::string half = std::to_string(devices / 2);
    const std::string strategy = which == 0   ? "chimera("
                                 : which == 1 ? "dualpipe("
                                 : which == 2 ? "1f1b(cut=0x" + half + ":2x" + half
                                              : "eager_1f1b(cut=0x" + std::to_string(devices);
    const std::string comma = which < 2 ? "" : ",";
    const std::int64_t size = random.between(1, 60);
    const Pieces time{.f = 0.5 * random.between(1, 4), .b = 0.5 * random.between(0, 4), .w = 0.5};
    const Problem problem = with_gradients(bytes, strategy + ")", devices, 2 * devices, time);
    const Ran alone = run_buckets(problem, strategy + ")");
    const Ran ran = run_buckets(problem, strategy + comma + "buckets=" + std::to_string(size) + "B)");
    const auto summed = [](const Schedule& schedule) {
      std::multiset<std::pair<TensorId, MemoryId>> all;
      for (const Collective& collective : schedule.collectives) {
        for (const BufferId b : collective.inputs) all.emplace(schedule[b].tensor, schedule[b].memory);
      }
      return all;
    };
    INFO(strategy << ", buckets of " << size << " B");
    CHECK(summed(ran.plan.schedule) == summed(alone.plan.schedule));
    CHECK(bytes_moved(ran.plan.schedule) == bytes_moved(alone.plan.schedule));
    std::size_t not_full = 0;
    for (const Collective& collective : ran.plan.schedule.collectives) {
      const Bytes all = bytes_of_first_rank(ran.plan.schedule, collective);
      const Bytes last = ran.plan.schedule[collective.inputs[collective.values - 1]].bytes;
      not_full += all < Bytes{size} ? 1 : 0;
      CHECK((collective.values == 1 || all - last < Bytes{size}));
    }
    CHECK(not_full <= (which < 2 ? devices : which == 2 ? 2 : 1));
  }
}

TEST_CASE("buckets are asked for by a size", "[pipelining]") {
  CHECK(complaint_of([] { parse_spec("chimera(buckets=25)", "test"); }) ==
        "test:1:17: chimera.buckets: expected off or a size, such as 25MB, found '25'");
  CHECK(complaint_of([] { parse_spec("gpipe(buckets=25MB)", "test"); }) == "test:1:7: gpipe.buckets: unknown option");
}

}  // namespace
}  // namespace plimsoll
