// Pipelines: the budget that an answer names as the smallest is the least with which there is a plan, also where the
// pipeline is made for the budget or takes its turns in another order.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Stages of unequal times and sizes, up to twice as many and three as the two or three devices.
Problem unequal_pipeline(std::uint64_t seed, const std::vector<Pass>& passes) {
  Random random(seed);
  const std::uint32_t devices = random.between(2, 3);
  Chain chain = with_weight_times(random_small_chain(seed, random.between(2 * devices, 2 * devices + 3)));
  for (Stage& stage : chain.stages) stage.has_backward = true;
  const Platform platform =
      gpus({.count = devices, .to_peers = BytesPerSecond{4}, .peer_latency = Seconds{random.between(0, 1) * 0.5}});
  return problem_of(std::move(chain), platform,
                    {.micro_batches = random.between(3, 5), .backward = backward_for(passes)});
}

bool has_plan(const Problem& problem, const std::vector<Pass>& passes, Bytes budget) {
  const PlanOutcome outcome = plan(problem, passes, budget);
  const Plan* made = std::get_if<Plan>(&outcome);
  if (made != nullptr) CHECK(made->peak <= budget);
  return made != nullptr;
}

TEST_CASE("pipelines have a plan within the smallest budget that they name, and none within less",
          "[pipelining][eleventh-7]") {
  for (const RandomCase seed : fewer_cases(1, 10)) {
    for (const char* spec :
         {"1f1b(cut=madpipe)", "1f1b(cut=piper)", "1f1b(cut=ideals)", "pipeline_search(moves=50)",
          "gpipe(order=fifo,work_conserving=yes)", "zb_h1(cut=uniform,work_conserving=yes)|selective"}) {
      INFO(spec);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = unequal_pipeline(seed, passes);
      const PlanOutcome nothing = plan(problem, passes, Bytes{0});
      const Bytes least = std::get<Infeasible>(nothing).smallest.value();
      CHECK(least <= std::get<Plan>(plan(problem, passes, std::nullopt)).peak);
      for (const std::int64_t less : {1, 2, 4, 8}) CHECK(!has_plan(problem, passes, least - Bytes{less}));
      for (const std::int64_t more : {0, 3}) CHECK(has_plan(problem, passes, least + Bytes{more}));
    }
  }
}

TEST_CASE("a planner's cuts take no more time with more memory, each budget below its need asked by itself",
          "[pipelining]") {
  for (const RandomCase seed : fewer_cases(1, 20)) {
    for (const char* spec : {"1f1b(cut=pipedream)", "1f1b(cut=piper)", "1f1b(cut=alpa)", "1f1b(cut=ideals)"}) {
      INFO(spec);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = unequal_pipeline(seed, passes);
      const Plan all = std::get<Plan>(plan(problem, passes, std::nullopt));
      const Bytes least = std::get<Infeasible>(plan(problem, passes, Bytes{0})).smallest.value();
      if (least == all.peak) continue;
      Seconds before = std::get<Plan>(plan(problem, passes, least)).makespan;
      for (const std::int64_t share : {1, 2, 3, 4}) {  // with all that it needs its own cut is kept
        const Bytes budget{least.count + (all.peak.count - 1 - least.count) * share / 4};
        const Seconds now = std::get<Plan>(plan(problem, passes, budget)).makespan;
        CHECK(now <= before);
        before = now;
      }
    }
  }
}

TEST_CASE("with all memory what may recompute nothing is no slower in a pipeline than plain training", "[pipelining]") {
  for (const RandomCase seed : fewer_cases(1, 30)) {
    for (const std::string pipe : {"gpipe", "zb_h1", "interleaved"}) {
      const auto seconds = [&](const std::string& memory) {
        const std::vector<Pass> passes = parse_spec(pipe + memory, "test");
        return std::get<Plan>(plan(unequal_pipeline(seed, passes), passes, std::nullopt)).makespan;
      };
      for (const char* memory : {"|selective", "|periodic", "|selective|offload_greedy"}) {
        INFO(pipe << memory);
        CHECK(seconds(memory) <= seconds(""));
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
