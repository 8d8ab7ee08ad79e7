// Rules of every offloading strategy on random chains and graphs, with links fast, slow and without limit.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"
#include "strategies/offloading/activations/offload_model.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

Problem random_problem(std::uint64_t seed, BytesPerSecond to_host) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.chance(0.8) ? 1 : random.between(2, 3),
                               .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
  const Gpus machine{.to_host = to_host};
  if (random.chance(0.5)) return problem_of(random_small_chain(seed, random.between(1, 9)), gpus(machine), options);
  return problem_of(random_graph(seed, random.between(1, 12)), gpus(machine), options);
}

const std::vector<std::string> offloading_specs{"offload_greedy",
                                                "offload_greedy(chunks=1)",
                                                "offload_greedy(chunks=64)",
                                                "save_on_cpu",
                                                "vdnn",
                                                "vdnn(mode=all)",
                                                "vdnn(mode=conv)",
                                                "superneurons",
                                                "superneurons(recompute=memory)",
                                                "capuchin",
                                                "capuchin(recompute=off)",
                                                "offload_fractional",
                                                "offload_exact(values=7)",
                                                "snapshot(chunks=16)"};
constexpr std::array link_bandwidths{unlimited_bandwidth, BytesPerSecond{16}, BytesPerSecond{4}, BytesPerSecond{0.5}};

TEST_CASE("the memory that offload planners see is what a tape takes", "[offload]") {
  for (const RandomCase seed : random_cases(1, 300)) {
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

TEST_CASE("offloading is legal, keeps promise and budget, and is never faster with less", "[offload][eleventh-4]") {
  for (const std::string& spec : offloading_specs) {
    for (const BytesPerSecond bandwidth : link_bandwidths) {
      for (const RandomCase seed : fewer_cases(1, 15)) {
        INFO(spec << " at " << bandwidth.value << " B/s, seed " << seed);
        const Problem problem = random_problem(seed, bandwidth);
        const Plan free = planned(problem, spec);
        judge(problem, free, std::nullopt);
        const Bytes least = smallest(problem, spec);
        double slower = free.makespan.value;
        for (Bytes budget = free.peak; budget >= least; budget -= Bytes{3}) {
          const Plan made = planned(problem, spec, budget);
          judge(problem, made, budget);
          CHECK(made.makespan.value >= slower * (1 - 1e-9));
          slower = std::max(slower, made.makespan.value);
        }
      }
    }
  }
}

TEST_CASE("copies that take no time reach the memory bound of chains without a slow-down", "[offload]") {
  for (const RandomCase seed : random_cases(1, 300)) {
    INFO("seed " << seed);
    Chain chain = random_small_chain(seed, 1 + seed % 9);
    // The bound takes the smaller of both, whichever runs. Of two below 0 the larger one fits both ways to run.
    for (Stage& stage : chain.stages) {
      const Bytes both = std::max(stage.backward_workspace, stage.backward_accumulate_workspace);
      stage.backward_workspace = stage.backward_accumulate_workspace =
          stage.backward_workspace < Bytes{0} ? both : stage.backward_workspace;
    }
    const Problem problem = problem_of(chain, gpus({}));
    const Bytes bound = lower_bounds(problem, 1).memory;
    const Plan made = planned(problem, "offload_greedy", bound);
    CHECK(made.peak == bound);
    CHECK(made.makespan.value == Approx(planned(problem, "store_all").makespan.value).epsilon(1e-12));
  }
}

TEST_CASE("copies that take no time slow no graph down", "[offload]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    INFO("seed " << seed);
    const Problem problem = problem_of(random_graph(seed, 1 + seed % 12), gpus({}));
    const Plan made = planned(problem, "offload_greedy", smallest(problem, "offload_greedy"));
    CHECK(made.makespan.value == Approx(planned(problem, "store_all").makespan.value).epsilon(1e-12));
  }
}

TEST_CASE("offloading goes on from the tape of the pass before", "[offload][eleventh-8]") {
  const std::vector<std::string> combined{
      "rotor|offload_greedy",      "chen_sqrt|save_on_cpu",  "dtr|offload_greedy",
      "greedy_recompute|capuchin", "rotor|vdnn(mode=all)",   "rotor|superneurons",
      "rotor|offload_fractional",  "chen_greedy|offload_dp", "min_cut|offload_greedy"};
  for (const std::string& spec : combined) {
    for (const BytesPerSecond bandwidth : link_bandwidths) {
      for (const RandomCase seed : fewer_cases(1, 4)) {
        INFO(spec << " at " << bandwidth.value << " B/s, seed " << seed);
        const Problem problem = problem_of(random_small_chain(seed, 2 + seed), gpus({.to_host = bandwidth}));
        const Plan free = planned(problem, spec);
        judge(problem, free, std::nullopt);
        double slower = 0;
        const Bytes least = smallest(problem, spec);
        for (Bytes budget = free.peak; budget >= least; budget -= Bytes{5}) {
          const Plan made = planned(problem, spec, budget);
          judge(problem, made, budget);
          CHECK(made.makespan.value >= slower * (1 - 1e-9));
          slower = std::max(slower, made.makespan.value);
        }
        CHECK(std::holds_alternative<Infeasible>(plan_one(problem, spec, least - Bytes{1})));
      }
    }
  }
}

TEST_CASE("rotor|offload_greedy is never slower than rotor, and offload_greedy without copies is rotor",
          "[offload][eleventh-1]") {
  for (const RandomCase seed : random_cases(1, 20)) {
    Problem problem = problem_of(random_small_chain(seed, 2 + seed % 7), gpus({.to_host = BytesPerSecond{4}}));
    for (const bool connected : {true, false}) {
      if (!connected) problem.platform.links.clear();
      const Bytes least = smallest(problem, "rotor");
      for (Bytes budget = least + Bytes{40}; budget >= least; budget -= Bytes{4}) {
        INFO("seed " << seed << ", budget " << budget.count);
        const double alone = planned(problem, "rotor", budget).makespan.value;
        const double both = planned(problem, "rotor|offload_greedy", budget).makespan.value;
        CHECK(both <= alone * (1 + 1e-9));
        if (!connected) CHECK(both == Approx(alone).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("in pipelines offload_greedy behind recomputation is never slower than without, and has a plan where it has",
          "[offload]") {
  for (const RandomCase seed : fewer_cases(1, 12)) {
    const Problem problem = problem_of(random_small_chain(seed, 4 + seed % 5),
                                       gpus({.count = 2, .to_host = BytesPerSecond{2}, .to_peers = BytesPerSecond{2}}),
                                       {.micro_batches = 3});
    for (const std::string alone : {"1f1b(stages=2)|rotor", "gpipe(stages=2)|full_recompute"}) {
      const Bytes least = smallest(problem, alone);
      for (Bytes budget = least + Bytes{24}; budget >= least; budget -= Bytes{8}) {
        INFO(alone << ", budget " << budget.count);
        const Plan both = planned(problem, alone + "|offload_greedy", budget);
        CHECK(check(both.schedule, problem.graph, problem.platform).empty());
        CHECK(both.peak <= budget);
        CHECK(both.makespan.value <= planned(problem, alone, budget).makespan.value * (1 + 1e-9));
      }
    }
  }
}

TEST_CASE("save_on_cpu takes the time of all copies, one after the other, by hand", "[offload]") {
  // Two stages of 1 s and 2 s and a loss without time: x1 and x2 (10 B) and their inner tensors (5 B) are saved; x0
  // stays. At 5 B/s 30 B take 6 s there and 6 s back: 2 * 3 + 12 s.
  const Problem problem = problem_of(even_chain(2), gpus({.to_host = BytesPerSecond{5}}));
  CHECK(planned(problem, "save_on_cpu").makespan.value == Approx(2 * 3 + 12).epsilon(1e-12));
}

TEST_CASE("chunks that leave while the next stage runs make room sooner", "[offload]") {
  const Problem problem = problem_of(even_chain(6), gpus({.to_host = BytesPerSecond{6}}));
  const Bytes least = smallest(problem, "offload_greedy"), most = planned(problem, "store_all").peak;
  double whole = 0, chunked = 0;
  for (Bytes budget = least; budget < most; budget += Bytes{1}) {
    whole += planned(problem, "offload_greedy(chunks=1)", budget).makespan.value;
    chunked += planned(problem, "offload_greedy(chunks=5)", budget).makespan.value;
  }
  CHECK(chunked < 0.99 * whole);
}

TEST_CASE("on a link that both directions share the promise still holds", "[offload]") {
  for (const std::string& spec : offloading_specs) {
    Problem problem = problem_of(random_small_chain(5, 7), gpus({.to_host = BytesPerSecond{6}}));
    for (Link& link : problem.platform.links) link.full_duplex = false;
    problem.platform.devices[0].overlap_slowdown = {1.0, 1.25, 1.5};
    INFO(spec);
    judge(problem, planned(problem, spec, smallest(problem, spec)), smallest(problem, spec));
  }
}

TEST_CASE("what must offload is refused by name where there is no host", "[offload]") {
  Problem problem = problem_of(even_chain(2), gpus({}));
  problem.platform.links.clear();
  for (const std::string spec : {"save_on_cpu", "vdnn(mode=all)", "vdnn(mode=conv)"}) {
    CHECK(std::get<Infeasible>(plan_one(problem, spec, std::nullopt)).reason ==
          "platform 'test' has no host memory that 'gpu0' can reach");
  }
}

TEST_CASE("without a way to a host nothing is offloaded", "[offload]") {
  Problem problem = problem_of(even_chain(4), gpus({}));
  problem.platform.links.clear();
  const Plan plain = planned(problem, "store_all");
  CHECK(planned(problem, "offload_greedy").peak == plain.peak);
  CHECK(smallest(problem, "offload_greedy") == plain.peak);
}

TEST_CASE("long tapes leave little of a budget idle while they wait for copies", "[offload]") {
  const Problem problem = problem_of(even_chain(1500), gpus({.to_host = BytesPerSecond{2}}));
  const Plan plain = planned(problem, "store_all");
  for (const std::int64_t percent : {40, 47, 55, 63, 71}) {
    const Bytes budget{plain.peak.count * percent / 100};
    const Plan made = planned(problem, "offload_greedy(chunks=1)", budget);
    INFO(percent << " % of " << plain.peak.count << " bytes: " << made.peak.count);
    REQUIRE(made.makespan > plain.makespan);
    CHECK(10 * made.peak.count > 9 * budget.count);
  }
}

TEST_CASE("capuchin is never slower with more bandwidth", "[offload]") {
  for (const RandomCase seed : fewer_cases(19, 33)) {
    Random random(seed);
    const Chain chain = random_small_chain(seed, random.between(3, 12));
    const std::vector<Pass> passes = parse_spec(random.chance(0.7) ? "capuchin" : "capuchin(recompute=off)", "test");
    std::vector<std::optional<double>> slower(6);
    for (double bandwidth = 0.4; bandwidth < 40; bandwidth *= 1.6) {
      const Problem problem = problem_of(chain, gpus({.to_host = BytesPerSecond{bandwidth}}));
      const Bytes all = planned(problem, "store_all").peak;
      std::vector<std::optional<Bytes>> budgets;
      for (int percent = 95; percent > 47; percent -= 8) budgets.emplace_back(Bytes{all.count * percent / 100});
      const std::vector<PlanOutcome> made = plan(problem, passes, budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        if (!std::holds_alternative<Plan>(made[b])) continue;
        const double time = std::get<Plan>(made[b]).makespan.value;
        INFO("seed " << seed << ", " << bandwidth << " B/s, budget " << budgets[b]->count);
        CHECK(time <= slower[b].value_or(time) * (1 + 1e-9));
        slower[b] = time;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
