// Where offloaded values go is an option and a line of the platform file, not a case of a strategy.

#include <catch2/catch.hpp>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

Problem transformer_on(Platform platform) {
  return problem_of(load_trace("transformer:layers=8,width=256,heads=4,sequence=512,vocabulary=1000").model,
                    std::move(platform));
}

MemoryId called(const Platform& platform, const std::string& name) {
  const auto found = std::ranges::find(platform.memories, name, &Memory::name);
  REQUIRE(found != platform.memories.end());
  return id_at<MemoryId>(static_cast<std::size_t>(found - platform.memories.begin()));
}

/// At three quarters of what the model needs, or nothing where that cannot be.
std::optional<Plan> plan_at_three_quarters(const Problem& problem, const std::string& strategy) {
  const std::optional<Bytes> unlimited;
  const std::vector<Pass> plain = parse_spec("store_all", "test");
  const Bytes peak = std::get<Plan>(plan(problem, plain, std::span(&unlimited, 1)).front()).peak;
  const std::optional<Bytes> within = Bytes{peak.count / 4 * 3};
  const std::vector<Pass> passes = parse_spec(strategy, "test");
  const PlanOutcome outcome = plan(problem, passes, std::span(&within, 1)).front();
  if (!std::holds_alternative<Plan>(outcome)) return std::nullopt;
  return std::get<Plan>(outcome);
}

/// The most of the model that is in each memory, as an engine has it.
std::vector<Bytes> peaks_of(const Problem& problem, const Plan& plan) {
  CHECK(check(plan.schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(plan.schedule, problem.platform);
  CHECK(timeline.makespan == plan.makespan);
  std::vector<Bytes> peaks;
  for (const auto& peak : timeline.peaks) peaks.push_back(peak.bytes);
  return peaks;
}

TEST_CASE("values go to any memory that a platform file names, and to no other", "[offload]") {
  const Platform platform = load_platform("h100_pair_cxl");
  const Problem problem = transformer_on(platform);
  for (const std::string strategy : {"offload_greedy", "offload_fractional", "offload_dp"}) {
    for (const std::string to : {"host", "cxl", "gpu1"}) {
      INFO(strategy << " to " << to);
      const std::optional<Plan> made = plan_at_three_quarters(problem, strategy + "(to=" + to + ")");
      REQUIRE(made);
      const std::vector<Bytes> peaks = peaks_of(problem, *made);
      for (std::size_t m = 1; m < peaks.size(); ++m) {
        CHECK((peaks[m] > Bytes{0}) == (id_at<MemoryId>(m) == called(platform, to)));
      }
    }
  }
}

TEST_CASE("the platform's host is where every strategy offloads", "[offload][eleventh-0]") {
  Platform platform = load_platform("h100_pair_cxl");
  for (const std::string to : {"cxl", "gpu1"}) {
    platform.devices[0].host = called(platform, to);
    const Problem problem = transformer_on(platform);
    for (const std::string strategy : {"offload_greedy", "vdnn", "save_on_cpu", "pofo"}) {
      INFO(strategy << " to " << to);
      const std::optional<Plan> made = plan_at_three_quarters(problem, strategy);
      if (!made) continue;  // vdnn moves all or nothing
      const std::vector<Bytes> peaks = peaks_of(problem, *made);
      CHECK(peaks[called(platform, "host").index] == Bytes{0});
      CHECK((strategy == "pofo" || peaks[called(platform, to).index] > Bytes{0}));
    }
  }
}

TEST_CASE("a faster way makes the same values cost less time", "[offload]") {
  const Problem problem = transformer_on(load_platform("h100_pair_cxl"));
  const auto seconds = [&](const std::string& to) {
    return plan_at_three_quarters(problem, "offload_greedy(to=" + to + ")").value().makespan;
  };
  CHECK(seconds("gpu1") < seconds("host"));
  CHECK(seconds("host") < seconds("cxl"));
}

TEST_CASE("a memory that is not there, or the device's own, is refused by name", "[offload]") {
  const Problem problem = transformer_on(load_platform("h100_pair_cxl"));
  const auto complaint = [&](const std::string& to) {
    return complaint_of([&] { plan_at_three_quarters(problem, "offload_greedy(to=" + to + ")"); });
  };
  CHECK(complaint("cxk") ==
        "to=cxk: platform 'h100_pair_cxl' has no such memory; did you mean 'cxl'?; expected host, gpu1 or cxl");
  CHECK(complaint("gpu0") == "to=gpu0: that is where the values are; expected another memory");
}

}  // namespace
}  // namespace plimsoll
