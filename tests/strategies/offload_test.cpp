// Rules of every offloading strategy on random chains and graphs, with links fast, slow and without limit.

#include <catch2/catch.hpp>

#include "sim/core/check.h"
#include "sim/core/metrics.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/common/op_sequence.h"
#include "strategies/common/tape_cost.h"
#include "strategies/offloading/offload_model.h"
#include "strategies/plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

PlanOutcome plan_one(const Problem& problem, const std::string& spec, std::optional<Bytes> budget) {
  return std::move(plan(problem, parse_spec(spec, "test"), std::span(&budget, 1)).front());
}

Bytes smallest(const Problem& problem, const std::string& spec) {
  return std::get<Infeasible>(plan_one(problem, spec, Bytes{-1})).smallest.value();
}

Plan planned(const Problem& problem, const std::string& spec, std::optional<Bytes> budget = std::nullopt) {
  PlanOutcome outcome = plan_one(problem, spec, budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(std::move(outcome));
}

/// The judge, the promise and the budget.
void hold(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  const std::vector<Violation> found = check(made.schedule, problem.graph, problem.platform, 1);
  INFO((found.empty() ? std::string() : found[0].what));
  REQUIRE(found.empty());
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.peaks[0].bytes == made.peak);
  CHECK(timeline.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  CHECK((!budget || made.peak <= *budget));
  CHECK(recount(made.schedule, timeline, problem.platform)[0] == timeline.peaks[0].bytes);
}

Problem random_problem(std::uint64_t seed, BytesPerSecond to_host) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.chance(0.8) ? 1 : random.between(2, 3),
                               .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
  const Gpus machine{.to_host = to_host};
  if (random.chance(0.5)) return problem_of(random_small_chain(seed, random.between(1, 9)), gpus(machine), options);
  return problem_of(random_graph(seed, random.between(1, 12)), gpus(machine), options);
}

const std::vector<std::string> specs{
    "offload_greedy", "offload_greedy(chunks=1)", "offload_greedy(chunks=64)", "save_on_cpu", "vdnn",
    "vdnn(mode=all)", "vdnn(mode=conv)"};
constexpr std::array bandwidths{unlimited_bandwidth, BytesPerSecond{16}, BytesPerSecond{4}, BytesPerSecond{0.5}};

TEST_CASE("the memory that offload planners see is what a tape takes", "[offload]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Problem problem = random_problem(seed, unlimited_bandwidth);
    const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const PlannedTape plain = planned_ops(task, store_all_ops(task));
    const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr);
    const auto& model = std::get<OffloadModel>(made);
    INFO("seed " << seed);
    CHECK(*std::ranges::max_element(model.memory) == plain.peak);
  }
}

TEST_CASE("offloading is legal, keeps promise and budget, and is never faster with less", "[offload]") {
  for (const std::string& spec : specs) {
    for (const BytesPerSecond bandwidth : bandwidths) {
      for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        INFO(spec << " at " << bandwidth.value << " B/s, seed " << seed);
        const Problem problem = random_problem(seed, bandwidth);
        const Plan free = planned(problem, spec);
        hold(problem, free, std::nullopt);
        const Bytes least = smallest(problem, spec);
        double slower = free.makespan.value;
        for (Bytes budget = free.peak; budget >= least; budget -= Bytes{3}) {
          const Plan made = planned(problem, spec, budget);
          hold(problem, made, budget);
          CHECK(made.makespan.value >= slower * (1 - 1e-9));
          slower = std::max(slower, made.makespan.value);
        }
      }
    }
  }
}

TEST_CASE("copies that take no time reach the memory bound without a slow-down", "[offload]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    const Problem problem = random_problem(seed, unlimited_bandwidth);
    const Bytes bound = lower_bounds(problem, 1).memory;
    const Bytes least = smallest(problem, "offload_greedy");
    const Plan made = planned(problem, "offload_greedy", least);
    INFO((problem.chain ? "chain" : "graph") << problem.micro_batches);
    CHECK(least == bound);
    CHECK(made.makespan.value == Approx(planned(problem, "store_all").makespan.value).epsilon(1e-12));
  }
}

TEST_CASE("without a way to a host nothing is offloaded", "[offload]") {
  Problem problem = problem_of(even_chain(4), gpus({}));
  problem.platform.links.clear();
  const Plan plain = planned(problem, "store_all");
  CHECK(planned(problem, "offload_greedy").peak == plain.peak);
  CHECK(smallest(problem, "offload_greedy") == plain.peak);
}

}  // namespace
}  // namespace plimsoll
