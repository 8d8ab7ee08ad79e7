// Pipelines that are never flushed: versions, micro-batches in flight, peaks and times against closed forms.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

constexpr std::int64_t version_bytes = 1000, adam_bytes = 2 * version_bytes,
                       gradient_bytes = version_bytes;  // Adam's two states

/// Equal stages, each with a parameter of its own.
Problem trained(const std::vector<Pass>& passes, std::uint32_t p, std::uint32_t m, const Pieces& time,
                const Saves& saves) {
  Chain chain = equal_stages(p, time, saves);
  for (std::uint32_t s = 0; s < p; ++s) {
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{version_bytes}});
    chain.stages[s].parameters = {s};
  }
  return problem_of(chain, gpus({.count = p, .peer_latency = Seconds{time.c}}),
                    {.micro_batches = m, .optimizer = Optimizer::adam, .backward = backward_for(passes)});
}

struct Asynchronous {
  Schedule schedule;
  Metrics metrics;
};

/// Planned, judged and simulated by both engines.
Asynchronous simulated(const std::string& spec, std::uint32_t p, std::uint32_t m, const Pieces& time = {},
                       const Saves& saves = {}) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem = trained(passes, p, m, time, saves);
  const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
  const std::vector<Violation> found = check(made.schedule, problem.graph, problem.platform);
  if (!found.empty()) FAIL_CHECK(found[0].what);
  const Timeline event = simulate_event(made.schedule, problem.platform);
  const Timeline simgrid = simulate_simgrid(made.schedule, problem.platform);
  CHECK(event.makespan == made.makespan);
  CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-12));
  const std::vector<Bytes> counted = recount(made.schedule, event, problem.platform);
  for (std::uint32_t s = 0; s < p; ++s) {
    CHECK(event.peaks[s].bytes == simgrid.peaks[s].bytes);
    CHECK(event.peaks[s].bytes == counted[s]);
  }
  return {made.schedule, measure(problem, made.schedule, event)};
}

/// Of a stage that keeps the versions of w micro-batches behind it.
std::int64_t stashed_versions(std::uint32_t w, std::uint32_t m) {
  return w == 0 || m == 1 ? 1 : std::min(w + 1, std::max(2U, m >= w ? m - w + 1 : 2U));
}

TEST_CASE("pipedream: p - s versions and micro-batches, the makespan of 1f1b", "[pipelining][versions]") {
  for (const std::uint32_t p : {1U, 2U, 3U, 4U, 6U}) {
    for (const std::uint32_t m : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 13U, 20U}) {
      for (const double c : {0.0, 0.5}) {
        INFO("p " << p << ", m " << m << ", c " << c);
        const Pieces time{.c = c};
        const Asynchronous bare = simulated("pipedream", p, m, time, {0, 0}), full = simulated("pipedream", p, m, time);
        const Run flushed = run_of("1f1b", p, p, m, time);
        CHECK(full.metrics.makespan == flushed.makespan);
        if (c == 0) CHECK(full.metrics.makespan.value == Approx((m + p - 1.0) * 3).epsilon(1e-12));
        if (c == 0 && m > p) CHECK(full.metrics.period->value == Approx(3).epsilon(1e-12));
        CHECK(full.schedule.staleness == std::min(m, p) - 1);
        for (std::uint32_t s = 0; s < p; ++s) {
          INFO("stage " << s);
          CHECK(full.metrics.devices[s].in_flight == std::min(p - s, m));
          const std::int64_t beside = adam_bytes + gradient_bytes;
          CHECK(bare.metrics.devices[s].peak_live == Bytes{stashed_versions(p - s - 1, m) * version_bytes + beside});
          if (m < 2 * (p - s) - 1) continue;
          CHECK(full.metrics.devices[s].peak_live == Bytes{(p - s) * (version_bytes + 6) + beside});
        }
      }
    }
  }
}

TEST_CASE("pipedream_2bw: two versions and p - s micro-batches, the makespan of 1f1b", "[pipelining][versions]") {
  for (const std::uint32_t p : {1U, 2U, 3U, 4U}) {
    for (const std::uint32_t group : {p, p + 1, 2 * p}) {
      for (const std::uint32_t groups : {1U, 2U, 3U, 5U}) {
        const std::uint32_t m = group * groups;
        INFO("p " << p << ", groups of " << group << ", m " << m);
        const std::string spec = "pipedream_2bw(group=" + std::to_string(group) + ")";
        const Asynchronous bare = simulated(spec, p, m, {}, {0, 0}), full = simulated(spec, p, m);
        CHECK(full.metrics.makespan.value == Approx((m + p - 1.0) * 3).epsilon(1e-12));
        CHECK(full.schedule.staleness == (groups > 1 ? 1 : 0));
        for (std::uint32_t s = 0; s < p; ++s) {
          const std::int64_t versions = groups > 1 ? 2 : 1, kept = std::min(p - s, m);
          CHECK(full.metrics.devices[s].in_flight == kept);
          CHECK(bare.metrics.devices[s].peak_live == Bytes{versions * version_bytes + adam_bytes + gradient_bytes});
          CHECK(full.metrics.devices[s].peak_live ==
                Bytes{versions * version_bytes + kept * 6 + adam_bytes + gradient_bytes});
        }
      }
    }
  }
}

TEST_CASE("updates within an iteration where the weight gradients are made apart", "[pipelining][versions]") {
  const Asynchronous whole = simulated("pipedream", 3, 8), split = simulated("pipedream(backward=split)", 3, 8);
  CHECK(split.metrics.makespan < whole.metrics.makespan);  // the part before does not wait for the weights' gradients
  for (std::uint32_t s = 0; s < 3; ++s) {
    CHECK(split.metrics.devices[s].in_flight == 3 - s);
    CHECK(split.metrics.devices[s].peak_live <= whole.metrics.devices[s].peak_live);
  }
  simulated("pipedream_2bw(backward=split)", 3, 9);
}

TEST_CASE("a tape that recomputes keeps the versions, and fewer activations", "[pipelining][versions]") {
  const Asynchronous kept = simulated("pipedream", 3, 8), less = simulated("pipedream|full_recompute", 3, 8);
  CHECK(less.metrics.recompute > Seconds{0});
  CHECK(less.metrics.peak < kept.metrics.peak);
  CHECK(less.metrics.peak > Bytes{3 * version_bytes + adam_bytes + gradient_bytes - 1});
}

TEST_CASE("files of schedules declare versions, and only where there are some", "[pipelining][versions]") {
  const auto text_of = [](const std::string& spec) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem = trained(passes, 2, 4, {}, {});
    return schedule_text(std::get<Plan>(plan(problem, passes, std::nullopt)).schedule, "test", ".");
  };
  const std::string once = text_of("1f1b"), stashed = text_of("pipedream"), two = text_of("pipedream_2bw");
  CHECK(once.find("versions") == std::string::npos);
  CHECK(once.find("staleness") == std::string::npos);
  CHECK(stashed.find("\"versions\": \"stashed\",\n \"update_every\": 1,\n \"staleness\": 1,") != std::string::npos);
  CHECK(two.find("\"versions\": \"double_buffered\",\n \"update_every\": 2,\n \"staleness\": 1,") != std::string::npos);
  const Schedule read = parse_schedule(stashed, "test");
  CHECK(read.updates == Updates{Versions::stashed, 1});
  CHECK(read.staleness == 1);
  CHECK(schedule_text(read, "test", ".") == stashed);
}

TEST_CASE("what has no versions is refused with the reason", "[pipelining][versions]") {
  const auto refusal = [](const std::string& spec, std::uint32_t m, Optimizer optimizer, Gradients gradients,
                          bool shares) -> std::string {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    Chain chain = even_chain(3);
    chain.parameters.push_back({"w", Bytes{8}});
    chain.stages[0].parameters = {0};
    if (shares) chain.stages[2].parameters = {0};
    const Gpus machine{.count = 2, .to_host = BytesPerSecond{8}, .adam = BytesPerSecond{8}};
    try {
      const PlanOutcome made =
          plan(problem_of(chain, gpus(machine), {.micro_batches = m, .optimizer = optimizer, .gradients = gradients}),
               passes, std::nullopt);
      if (const auto* why = std::get_if<Infeasible>(&made)) return why->reason;
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  constexpr Optimizer adam = Optimizer::adam;
  constexpr Gradients fresh = Gradients::fresh;
  CHECK(refusal("pipedream", 4, adam, fresh, false) == "nothing");
  CHECK(refusal("pipedream", 4, Optimizer::none, fresh, false) != "nothing");
  CHECK(refusal("pipedream", 4, adam, Gradients::existing, false) ==
        "pipedream: gradients that exist from the start would have to be cleared between the updates of an iteration, "
        "which no op does; give --gradients new");
  CHECK(refusal("pipedream_2bw", 5, adam, fresh, false) ==
        "pipedream_2bw: 5 micro-batches, which must be a multiple of the 2 of an update");
  CHECK(refusal("pipedream_2bw(group=1)", 4, adam, fresh, false) ==
        "pipedream_2bw: group=1, and 2 stages need at least 2: else a third version is read");
  CHECK(refusal("pipedream", 4, adam, fresh, true) ==
        "two parts of the pipeline use 'w': updates within an iteration need parameters that one part alone uses");
  CHECK(refusal("pipedream|zero_offload", 4, adam, fresh, false) ==
        "updates within an iteration run on the device, and a tape keeps or updates parameters, gradients or states "
        "elsewhere");
}

}  // namespace
}  // namespace plimsoll
