// Strategies that move parameter updates off the device: by hand, against published step times, and as rules.

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// One GPU whose host updates `adam` bytes of parameters a second, with a disk behind the host.
Platform machine(BytesPerSecond to_host, BytesPerSecond adam, BytesPerSecond to_disk) {
  return gpus({.to_host = to_host, .adam = adam, .to_disk = to_disk});
}

/// `stages` stages of 1 s forward and backward with 8 bytes of parameters each.
Chain stages_alike(std::size_t stages) {
  Chain chain = even_chain(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    chain.stages[s].backward = Seconds{1};
    chain.stages[s].parameters = {static_cast<std::uint32_t>(s)};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{8}});
  }
  return chain;
}

double seconds(const Problem& problem, const std::string& spec) {
  return judged(problem, spec).makespan.value;
}

// Two stages: F1 F2 to 2 s, B2 to 3 s, B1 to 4 s. Gradients of 8 bytes leave in 0.5 s at 16 B/s. The host takes 2 s an
// update (8 bytes at 4 B/s), new parameters come back in 0.5 s.
TEST_CASE("zero_offload by hand: updates after the backward, or as gradients arrive", "[updates]") {
  const Problem problem = problem_of(stages_alike(2), machine({16}, {4}, {8}), {.optimizer = Optimizer::adam});
  CHECK(seconds(problem, "zero_offload") == 8.5);            // the host works from 4 to 8
  CHECK(seconds(problem, "zero_offload(overlap=on)") == 8);  // from 3.5, when B2's gradient is there, to 7.5
  // Parameters, one gradient, what training needs; no states: 2 x 8 bytes a stage less than plain training.
  CHECK(planned(problem, "store_all").peak - planned(problem, "zero_offload").peak >= Bytes{32});
}

// On the disk lie the parameters and two states, 24 bytes a stage: 3 s to read at 8 B/s and 3 s to write. With two
// buffers: read 4-7, update 7-9, write 9-12; read 7-10, update 10-12, write 12-15.
TEST_CASE("zero_infinity by hand: reads and writes run while the host updates", "[updates]") {
  const Problem problem = problem_of(stages_alike(2), machine({16}, {4}, {8}), {.optimizer = Optimizer::adam});
  CHECK(seconds(problem, "zero_infinity") == 15);
  CHECK(seconds(problem, "zero_infinity(buffers=1)") == 20);  // the second read begins at 12: 15, 17, 20
}

// Each update more costs max(read 3, update 2, write 3, 8 / buffers) s.
TEST_CASE("zero_infinity's further updates take the slowest of disk and host, or wait for buffers", "[updates]") {
  const auto added = [](const std::string& spec) {
    const auto time = [&](std::size_t stages) {
      return seconds(problem_of(stages_alike(stages), machine({16}, {4}, {8}), {.optimizer = Optimizer::adam}), spec);
    };
    return (time(32) - time(8)) / 24 - 2;  // without the forward and backward of 1 s each
  };
  CHECK(added("zero_infinity(buffers=1)") == Approx(8));
  CHECK(added("zero_infinity(buffers=2)") == Approx(4));
  CHECK(added("zero_infinity(buffers=3)") == Approx(3));
}

TEST_CASE("twinflow at 100% is zero_offload, and at 0% plain training", "[updates]") {
  const Problem problem = problem_of(stages_alike(4), machine({16}, {4}, {8}), {.optimizer = Optimizer::adam});
  CHECK(seconds(problem, "twinflow(host=100%)") == seconds(problem, "zero_offload"));
  CHECK(seconds(problem, "twinflow(host=0%)") == seconds(problem, "store_all"));
  CHECK(planned(problem, "twinflow(host=0%)").peak == planned(problem, "store_all").peak);
  const Plan all = planned(problem, "twinflow(host=0%)"), none = planned(problem, "twinflow(host=100%)");
  const Plan half = planned(problem, "twinflow", Bytes{(all.peak.count + none.peak.count) / 2});
  CHECK(half.makespan < none.makespan);
}

/// n equal subgroups that compute in no time; the host updates one in `host` s, the device in `device` s.
Problem update_phase(std::size_t subgroups, double host, double device) {
  Chain chain = even_chain(subgroups);
  chain.source.device = "measured";
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    Stage& stage = chain.stages[s];
    stage.forward = stage.forward_nograd = stage.backward = Seconds{0};
    if (s == subgroups) continue;
    stage.parameters = {static_cast<std::uint32_t>(s)};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{400'000'000}});
  }
  Platform platform = machine(unlimited_bandwidth, {400e6 / host}, {1e9});
  platform.devices[0].takes_trace_times = false;
  platform.devices[0].model = "measured";
  platform.devices[0].memory_bandwidth = BytesPerSecond{7 * 400e6 / device};  // Adam moves 7 bytes a byte of parameters
  return problem_of(chain, platform, {.optimizer = Optimizer::adam});
}

TEST_CASE("deep_optimizer_states takes ((k - 1) a + b) / k a subgroup", "[updates]") {
  const Problem problem = update_phase(120, 3, 2);
  for (const int k : {2, 3, 4, 5, 6, 8, 10}) {
    CHECK(seconds(problem, "deep_optimizer_states(stride=" + std::to_string(k) + ")") ==
          Approx(120.0 * ((k - 1) * 3.0 + 2.0) / k).epsilon(1e-12));
  }
}

// The authors' step times in ms on 4 A100 for k = 2, 3, 4, 6, 8, 10. The two rates are fitted on the first and the
// last; the others come out within 4 %, not 3 %: the third is 3.9 % below for 7B and 3.3 % above for 13B, and no pair
// of rates does better on both, since the measured points do not lie on the formula's curve.
TEST_CASE("published step times of deep_optimizer_states come out within 4 %", "[updates]") {
  constexpr std::array strides{2, 3, 4, 6, 8, 10};
  for (const std::array<double, 6>& published : {std::array<double, 6>{1336, 1450, 1466, 1487, 1512, 1474},
                                                 std::array<double, 6>{2602, 2688, 2822, 2924, 2930, 3022}}) {
    const double host = (10 * published[5] - 2 * published[0]) / 8, device = 2 * published[0] - host;
    const Problem problem = update_phase(120, host / 120, device / 120);
    double worst = 0;
    for (std::size_t k = 0; k < strides.size(); ++k) {
      const double ours = seconds(problem, "deep_optimizer_states(stride=" + std::to_string(strides[k]) + ")");
      worst = std::max(worst, std::abs(ours / published[k] - 1));
    }
    CHECK(worst < 0.04);
    CHECK(worst > 0.03);
  }
}

// Copies of the states (2 x 8 bytes) take 3 s each way, new parameters 1.5 s, an update on the host 2 s: a stride of 2
// waits for copies, much longer ones leave the work to the host.
TEST_CASE("the best stride lies where the states' way to the device hides behind the host's updates", "[updates]") {
  const Problem problem = problem_of(stages_alike(12), machine({16.0 / 3}, {4}, {8}), {.optimizer = Optimizer::adam});
  const auto with = [&](int k) { return seconds(problem, "deep_optimizer_states(stride=" + std::to_string(k) + ")"); };
  const double best = seconds(problem, "deep_optimizer_states");
  double least = with(1);
  for (int k = 2; k <= 13; ++k) least = std::min(least, with(k));
  CHECK(best == least);
  CHECK(best < with(1));
  CHECK(best < with(2));
  CHECK(best < seconds(problem, "zero_offload"));
  CHECK(seconds(problem, "deep_optimizer_states(turns=off)") <= best);
}

// Of each of four stages 8 bytes of parameters, 16 of states and 8 of gradients. Within the backward one gradient is
// there at a time; existing ones stay, and so do those of earlier micro-batches.
TEST_CASE("backward_updates by hand: a gradient at a time, in the time of plain training", "[updates]") {
  Chain chain = stages_alike(4);
  for (Stage& stage : chain.stages) stage.output = stage.input_gradient = stage.saved = Bytes{0};
  chain.input = Bytes{0};
  const auto peak = [&](const std::string& spec, const ProblemOptions& options) {
    const Problem problem = problem_of(chain, gpus({}), options);
    if (spec == "backward_updates") CHECK(seconds(problem, spec) == seconds(problem, "store_all"));
    return planned(problem, spec).peak;
  };
  CHECK(peak("store_all", {.optimizer = Optimizer::adam}) == Bytes{4 * 32});
  CHECK(peak("backward_updates", {.optimizer = Optimizer::adam}) == Bytes{4 * 24 + 8});
  CHECK(peak("full_recompute|backward_updates", {.optimizer = Optimizer::adam}) == Bytes{4 * 24 + 8});
  CHECK(peak("backward_updates", {.micro_batches = 2, .optimizer = Optimizer::adam}) == Bytes{4 * 32});
  CHECK(peak("backward_updates", {.optimizer = Optimizer::adam, .gradients = Gradients::existing}) == Bytes{4 * 32});
}

std::vector<StepKind> kinds_of_steps(const Problem& problem, const std::string& spec) {
  std::vector<StepKind> kinds;
  for (const Step& step : judged(problem, spec).schedule.steps) kinds.push_back(step.kind);
  return kinds;
}

TEST_CASE("backward_updates waits for the last op that reads the parameter", "[updates]") {
  Chain chain = stages_alike(3);
  chain.stages[0].parameters = {0};
  chain.stages[2].parameters = {0};  // of the last stage's gradient, and read until the first one's backward
  chain.stages[1].parameters = {1};
  chain.parameters.pop_back();
  const Problem problem = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam});
  using enum StepKind;
  const std::vector<StepKind> expected{forward,  forward,  forward, forward,  backward,
                                       backward, backward, update,  backward, update};
  CHECK(kinds_of_steps(problem, "backward_updates") == expected);

  // The gradient is complete before the parameter is read for the last time.
  Graph graph;
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{8}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::input), w = tensor("w", TensorKind::parameter);
  const TensorId y = tensor("y", TensorKind::activation), g = tensor("gradient of y", TensorKind::gradient);
  const TensorId gw = tensor("gradient of w", TensorKind::parameter_gradient);
  const TensorId gx = tensor("gradient of x", TensorKind::gradient);
  const auto op = [&](const char* name, Phase phase, std::vector<TensorId> inputs, TensorId made) {
    graph.ops.push_back({.name = name,
                         .kind = name,
                         .phase = phase,
                         .duration = Seconds{1},
                         .inputs = std::move(inputs),
                         .outputs = {made}});
  };
  op("f", Phase::forward, {x, w}, y);
  op("loss", Phase::backward, {y}, g);
  op("of w", Phase::backward, {g, x}, gw);
  op("of x", Phase::backward, {g, w}, gx);
  CHECK(kinds_of_steps(problem_of(graph, gpus({}), {.optimizer = Optimizer::adam}), "backward_updates") ==
        std::vector{forward, backward, backward, backward, update});
}

TEST_CASE("strategies that move updates are legal and as promised on random problems", "[updates][eleventh-9]") {
  const std::vector<std::string> specs{"zero_offload",
                                       "zero_offload(overlap=on)",
                                       "zero_infinity",
                                       "twinflow",
                                       "deep_optimizer_states",
                                       "deep_optimizer_states(stride=2)",
                                       "rotor|twinflow",
                                       "backward_updates",
                                       "offload_greedy|backward_updates",
                                       "rotor|backward_updates"};
  for (const std::string& spec : specs) {
    for (const RandomCase seed : random_cases(1, 60)) {
      Random random(seed);
      const ProblemOptions options{.micro_batches = random.between(1, 3),
                                   .optimizer = random.chance(0.5) ? Optimizer::adam : Optimizer::momentum,
                                   .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
      Chain chain = random_small_chain(seed, random.between(1, 8));
      if (chain.parameters.empty()) continue;
      const Problem problem = problem_of(chain, machine({16}, {4}, {8}), options);
      INFO(spec << ", seed " << seed);
      if (std::ranges::none_of(problem.graph.ops, [](const Op& op) { return op.phase == Phase::update; })) continue;
      seconds(problem, spec);
      const Plan made = planned(problem, spec);
      const LowerBounds bounds = lower_bounds(problem, 1, stays_in(made.schedule, problem.graph, problem.platform));
      CHECK(made.makespan.value >= bounds.time().value * (1 - 1e-12));
      CHECK(made.peak >= bounds.memory);
    }
  }
}

TEST_CASE("updates cannot move without an optimizer, a host's rate or a disk", "[updates]") {
  const auto message = [](const Problem& problem, const std::string& spec) -> std::string {
    try {
      planned(problem, spec);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(problem_of(stages_alike(2), machine({16}, {4}, {8})), "zero_offload") ==
        "strategy 'zero_offload' places parameter updates, and there are none: give an --optimizer");
  CHECK(message(problem_of(stages_alike(2), gpus({}), {.optimizer = Optimizer::adam}), "zero_offload") ==
        "zero_offload: platform 'test' does not state how fast the host updates parameters: 'host' has no 'adam'");
  CHECK(message(problem_of(stages_alike(2), gpus({.adam = BytesPerSecond{1}}), {.optimizer = Optimizer::adam}),
                "zero_infinity") == "zero_infinity: platform 'test' has no disk behind the host");
}

/// Of which each parameter is frozen or not, and now and then a stage that shares none has one gradient of another
/// size.
Chain partly_frozen(std::uint64_t seed) {
  Random random(seed);
  Chain chain = random_small_chain(seed, random.between(2, 6));
  std::vector<int> users(chain.parameters.size(), 0);
  for (const Stage& stage : chain.stages) {
    for (const std::uint32_t p : stage.parameters) ++users[p];
  }
  for (Parameter& parameter : chain.parameters) parameter.trained = random.chance(0.5);
  for (Stage& stage : chain.stages) {
    const auto is_own = [&](std::uint32_t p) { return users[p] == 1; };
    if (!random.chance(0.4) || !std::ranges::all_of(stage.parameters, is_own)) continue;
    const auto is_trained = [&](std::uint32_t p) { return chain.parameters[p].trained; };
    const bool trains = std::ranges::any_of(stage.parameters, is_trained);
    stage.parameter_gradient = trains ? Bytes{random.between(1, 4)} : Bytes{0};
  }
  return chain;
}

TEST_CASE("plans of partly frozen chains are as promised, and hold states of what is trained",
          "[updates][eleventh-2]") {
  for (const RandomCase seed : fewer_cases(1, 60)) {
    const Problem problem =
        problem_of(partly_frozen(seed), gpus({.to_host = BytesPerSecond{8}}), {.optimizer = Optimizer::adam});
    for (const char* spec : {"rotor", "chen_sqrt", "full_recompute", "rotor|offload_greedy", "pofo"}) {
      INFO(spec);
      judged(problem, spec);
      judged(problem, spec, smallest(problem, spec));
    }
  }
}

}  // namespace
}  // namespace plimsoll
