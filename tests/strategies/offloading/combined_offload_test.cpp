// Activations offloaded and updates placed off the device in one schedule: they share the links, and the promise holds.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/contention.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// Eight stages of 1 s and 2 s with activations of 30 bytes and 8 bytes of parameters each.
Chain trained_chain() {
  Chain chain = even_chain(8);
  for (std::size_t s = 0; s < 8; ++s) {
    chain.stages[s].output = chain.stages[s].input_gradient = Bytes{20};
    chain.stages[s].saved = Bytes{30};
    chain.stages[s].parameters = {static_cast<std::uint32_t>(s)};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{8}});
  }
  return chain;
}

TEST_CASE("activations and updates off the device need less than either alone", "[combined]") {
  const Problem problem =
      problem_of(trained_chain(), gpus({.to_host = {16}, .adam = BytesPerSecond{8}}), {.optimizer = Optimizer::adam});
  const Bytes both = smallest(problem, "offload_greedy|zero_offload");
  CHECK(both < smallest(problem, "offload_greedy"));
  CHECK(both < smallest(problem, "zero_offload"));
  CHECK(smallest(problem, "rotor|offload_greedy|zero_offload") <= smallest(problem, "rotor|zero_offload"));
  CHECK(smallest(problem, "offload_greedy|demand_layering") < both);
  CHECK(smallest(problem, "rotor|offload_greedy|demand_layering") <=
        smallest(problem, "offload_greedy|demand_layering"));
}

TEST_CASE("with links that take no time the combination costs what the updates cost", "[combined]") {
  const Problem problem =
      problem_of(trained_chain(), gpus({.adam = BytesPerSecond{8}}), {.optimizer = Optimizer::adam});
  const double updates_alone = judged(problem, "zero_offload").makespan.value;
  const std::string spec = "offload_greedy|zero_offload";
  CHECK(judged(problem, spec, smallest(problem, spec)).makespan.value == Approx(updates_alone).epsilon(1e-12));
}

// What the way to the host carries: values that leave in the forward, and gradients in the backward; back come values
// in the backward and parameters at the end.
TEST_CASE("on a link of one direction at a time gradients and returning values hold each other up", "[combined]") {
  Problem problem =
      problem_of(trained_chain(), gpus({.to_host = {24}, .adam = BytesPerSecond{8}}), {.optimizer = Optimizer::adam});
  const std::string spec = "offload_greedy|zero_offload(overlap=on)";
  const auto contention = [&] {
    const Plan made = judged(problem, spec, smallest(problem, spec));
    const Schedule alone = without_contention(made.schedule, problem.platform);
    return made.makespan - simulate_event(alone, problem.platform).makespan;
  };
  CHECK(contention().value == Approx(0).margin(1e-9));
  for (Link& link : problem.platform.links) link.full_duplex = false;
  CHECK(contention().value > 0.1);
}

TEST_CASE("activation and update offloading together: legal, as promised, never faster with less",
          "[combined][eleventh-3]") {
  const std::vector<std::string> specs{"offload_greedy|zero_offload",
                                       "rotor|offload_greedy|zero_offload",
                                       "rotor|offload_greedy|twinflow(overlap=on)",
                                       "vdnn|zero_infinity",
                                       "capuchin|deep_optimizer_states(stride=2)",
                                       "save_on_cpu|zero_offload(overlap=on)",
                                       "offload_fractional|demand_layering",
                                       "sparse_update|offload_greedy|zero_offload"};
  for (const std::string& spec : specs) {
    for (const RandomCase seed : random_cases(1, 3)) {
      Random random(seed);
      const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1 : random.between(2, 3),
                                   .optimizer = Optimizer::adam,
                                   .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
      Chain chain = random_small_chain(seed, random.between(1, 7));
      if (std::ranges::all_of(chain.stages, [](const Stage& stage) { return stage.parameters.empty(); })) continue;
      Platform platform = gpus({.to_host = {static_cast<double>(random.between(2, 16))},
                                .adam = BytesPerSecond{4},
                                .to_disk = BytesPerSecond{8}});
      for (Link& link : platform.links) link.full_duplex = random.chance(0.7);
      if (random.chance(0.3)) platform.devices[0].overlap_slowdown = {1.0, 1.25, 1.5};
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = transformed(problem_of(chain, platform, options), passes);
      INFO(spec << ", seed " << seed);
      const Plan free = judged(problem, spec);
      const Bytes least = smallest(problem, spec);
      CHECK(std::holds_alternative<Infeasible>(plan_one(problem, spec, least - Bytes{1})));
      double slower = free.makespan.value;
      for (Bytes budget = free.peak; budget >= least; budget -= Bytes{9}) {
        const Plan made = judged(problem, spec, budget);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));
        slower = std::max(slower, made.makespan.value);
      }
      judged(problem, spec, least);
    }
  }
}

TEST_CASE("offloading strategies follow each other in one order only", "[combined]") {
  const auto message = [](const std::string& spec) -> std::string {
    try {
      parse_spec(spec, "spec");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("rotor|offload_greedy|zero_offload").empty());
  CHECK(message("zero_offload|offload_greedy") ==
        "spec:1:14: 'offload_greedy' cannot follow 'zero_offload': a strategy that moves activations comes before one "
        "that moves parameters, gradients or states");
  CHECK(message("zero_offload|demand_layering") ==
        "spec:1:14: 'demand_layering' cannot follow 'zero_offload': both move parameters, gradients or states");
  CHECK(message("vdnn|capuchin") == "spec:1:6: 'capuchin' cannot follow 'vdnn': both move activations");
}

}  // namespace
}  // namespace plimsoll
