// Chains that say what plain training takes, beside all that makes schedules of several devices or of ranks, moves
// parameters, or runs on devices where the trace's times do not hold.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Stages with parameters of their own, on two devices; the first may load its input.
Chain chain_beside(std::uint64_t seed, double share) {
  Random random(seed);
  Chain chain = random_small_chain(seed, random.between(2, 6));
  if (chain.parameters.empty()) chain.parameters.push_back({.name = "w", .bytes = Bytes{3}});
  chain = with_weight_times(with_own_parameters(std::move(chain)));
  if (random.chance(0.5)) chain.stages[0].load = Seconds{0.5};
  chain.plain = PlainTraining{share * all_alone(chain), all_alone(chain)};
  return chain;
}

Problem problem_beside(Chain chain, std::uint64_t seed, const std::vector<Pass>& passes, Platform platform) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = 2 * random.between(1, 2),
                               .optimizer = Optimizer::momentum,
                               .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing,
                               .backward = backward_for(passes)};
  return transformed(problem_of(std::move(chain), std::move(platform), options), passes);
}

Platform two_devices() {
  return gpus({.count = 2, .to_host = {8}, .to_peers = {16}, .peer_latency = Seconds{0.25}, .adam = BytesPerSecond{8}});
}

/// Of another model than the trace's, whose ops all take 3 s there.
Platform two_others() {
  Platform platform = two_devices();
  for (Device& device : platform.devices) {
    device.takes_trace_times = false;
    device.model = "B";
    device.peak["fp32"] = {8};
    device.memory_bandwidth = BytesPerSecond{8};
    device.launch_overhead = Seconds{2};
  }
  return platform;
}

TEST_CASE("what plain training takes, beside pipelines, ranks, placements and parameters elsewhere",
          "[conformance][turn-28]") {
  for (const RandomCase seed : fewer_cases(1, 20)) {
    const double share = std::array{0.5, 0.75, 1.25}[seed % 3];
    for (const std::string spec : {"1f1b(stages=1)",
                                   "1f1b(stages=1)|rotor",
                                   "1f1b(stages=1,cut=joint)|rotor",
                                   "gpipe(stages=1)|full_recompute",
                                   "zb_h1(stages=1)|rotor",
                                   "1f1b(stages=2)",
                                   "1f1b(stages=2)|rotor",
                                   "interleaved(stages=2,chunks=1)|chen_sqrt",
                                   "zb_h1(stages=2)",
                                   "data_parallel",
                                   "data_parallel|rotor",
                                   "data_parallel|offload_greedy",
                                   "zero1|zero_offload",
                                   "zero2|1f1b(stages=1)|rotor",
                                   "zero3",
                                   "zero3|rotor",
                                   "offmate",
                                   "demand_layering",
                                   "zero_offload",
                                   "heft",
                                   "auto",
                                   "portfolio"}) {
      INFO(spec << ", " << share << ", seed " << seed);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Chain chain = chain_beside(seed, share);
      judge_within_budgets(problem_beside(chain, seed, passes, two_devices()), passes);

      Chain elsewhere = chain;
      elsewhere.source = {.kind = Source::Kind::measured, .device = "A", .dtype = "fp32"};
      for (Stage& stage : elsewhere.stages) {
        stage.forward_flops = stage.backward_flops = Flops{8};
        stage.forward_bytes_moved = stage.backward_bytes_moved = Bytes{8};
      }
      const Problem other = problem_beside(elsewhere, seed, passes, two_others());
      elsewhere.plain.reset();
      const Problem unknown = problem_beside(elsewhere, seed, passes, two_others());
      const Plan made = std::get<Plan>(plan(other, passes, std::nullopt));
      judge_plan(other, made, std::nullopt);
      CHECK(made.makespan == std::get<Plan>(plan(unknown, passes, std::nullopt)).makespan);
    }
  }
}

TEST_CASE("a pipeline of one part is plain training, and takes what that takes", "[conformance]") {
  for (const RandomCase seed : fewer_cases(1, 20)) {
    INFO("seed " << seed);
    for (const char* spec : {"gpipe(stages=1)", "1f1b(stages=1)", "data_parallel(ranks=1)"}) {
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = problem_beside(chain_beside(seed, 0.5), seed, passes, two_devices());
      const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
      CHECK(made.makespan.value == Approx(problem.micro_batches * 0.5 * all_alone(*problem.chain).value));
    }
  }
}

}  // namespace
}  // namespace plimsoll
