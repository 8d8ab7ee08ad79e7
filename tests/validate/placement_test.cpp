// Placements of networks, as chains of stages and op by op, run on the CPU with threads for each device: losses,
// parameters, gradients and states as on one device, bit for bit but where devices sum a gradient.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "sim/measure/metrics.h"
#include "strategies/models/graph_tape.h"
#include "strategies/placement/placed_parts.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/networks/initial_values.h"

namespace plimsoll {
namespace {

constexpr BytesPerSecond peers{20e9};

/// Labels of its own for each row: a score for each micro-batch.
Batch labelled_batch(const Training& training) {
  constexpr std::int32_t rows_at_most = 64, classes = 3;
  const std::uint32_t micro_batches = training.problem.micro_batches;
  std::vector<std::int32_t> labels;
  for (std::int32_t row = 0; row < rows_at_most; ++row) labels.push_back(row % classes);
  return {input_values(training.network.network, micro_batches), {micro_batches, labels}};
}

Replayed trained(const Training& training, const Schedule& schedule) {
  const Batch batch = labelled_batch(training);
  std::variant<Replayed, ReplayFailure> outcome =
      run_of(training, schedule, {.poisons = true, .keeps_values = true, .batch = &batch});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::move(std::get<Replayed>(outcome));
}

/// Names of the gradients that several devices sum, and of what is updated with them.
std::set<std::string> summed(const Graph& graph, const Schedule& schedule) {
  std::map<TensorId, std::set<DeviceId>> makers;
  for (const Step& step : schedule.steps) {
    if (step.op == no_op || graph[step.op].phase == Phase::update) continue;
    for (const TensorId t : graph[step.op].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) makers[t].insert(schedule[step.stream].device);
    }
  }
  std::set<std::string> names;
  for (const auto& [gradient, devices] : makers) {
    if (devices.size() < 2) continue;
    names.insert(graph[gradient].name);
    for (const Op& op : graph.ops) {
      if (op.phase != Phase::update || std::ranges::find(op.inputs, gradient) == op.inputs.end()) continue;
      for (const TensorId t : op.inputs) names.insert(graph[t].name);
    }
  }
  return names;
}

struct Judged {
  std::size_t schedules = 0;
  std::size_t spread = 0;  ///< on several devices
  std::size_t exact = 0;   ///< no gradient is summed
};

/// Legal, and what is trained is what one device trains.
void judge_training(const Training& several, const Schedule& schedule, const Replayed& alone, Judged& judged) {
  const Graph& graph = several.problem.graph;
  const std::vector<Violation> violations = check(schedule, graph, several.problem.platform);
  INFO((violations.empty() ? std::string() : violations[0].what));
  REQUIRE(violations.empty());
  const Replayed run = trained(several, schedule);
  REQUIRE(run.scores.size() == alone.scores.size());
  for (std::size_t m = 0; m < run.scores.size(); ++m) {
    REQUIRE(run.scores[m].rows > 0);
    CHECK(run.scores[m].loss == alone.scores[m].loss);
  }
  const std::set<std::string> inexact = summed(graph, schedule);
  for (const std::string& name : differing(run, alone)) {
    INFO(name);
    REQUIRE(alone.values.contains(name));
    CHECK(inexact.contains(name));
    CHECK(relative_difference(run, alone, name) < 2e-5);
  }
  for (const auto& [name, value] : alone.values) {
    if (!run.values.contains(name)) FAIL_CHECK(name + " is missing");
  }
  const std::vector<Bytes> counted = recount(schedule, run.timeline, several.problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == run.timeline.peaks[m].bytes);
  ++judged.schedules;
  if (devices_used(schedule) > 1) ++judged.spread;
  if (inexact.empty()) ++judged.exact;
}

/// Each op, with those that must be where it is, on a device that is drawn.
Schedule placed_at_random(const Problem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto devices = static_cast<std::uint32_t>(problem.platform.devices.size());
  const GraphDag graph = graph_dag(problem, devices, ParameterHomes::copies);
  std::vector<std::uint32_t> on(graph.dag.size);
  for (std::uint32_t& device : on) device = static_cast<std::uint32_t>(random() % devices);
  for (const std::vector<std::uint32_t>& group : graph.dag.together) {
    for (const std::uint32_t v : group) on[v] = on[group.front()];
  }
  const Machine machine = machine_of(problem, graph, std::nullopt, 1);
  const Partition partition = placed_parts(problem, graph, on, emulate(graph.dag, machine, on, QueueOrder::fifo));
  std::vector<Tape> tapes;
  for (const Part& part : partition.parts) tapes.push_back(graph_tape(problem.graph, part));
  std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  return std::get<Schedule>(std::move(made));
}

TEST_CASE("placements train as one device does", "[validate][placement][eleventh-3]") {
  const std::string network = GENERATE(
      "mlp:layers=6,width=24,batch=6,classes=4", "lstm:steps=5,width=8,batch=3,classes=4",
      "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20",
      "resnet:blocks=4,channels=4,picture=16,batch=2,classes=5", "mlp:layers=6,width=24,batch=6,classes=4,view=graph",
      "lstm:steps=5,width=8,batch=3,classes=4,view=graph",
      "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20,view=graph",
      "resnet:blocks=4,channels=4,picture=16,batch=2,classes=5,view=graph");
  const std::uint32_t micro_batches = GENERATE(1u, 2u);
  const ProblemOptions options{.micro_batches = micro_batches, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = trained(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  Judged judged;
  for (const std::uint32_t devices : {2u, 3u}) {
    const Training several =
        training_of(network, gpus({.count = devices, .to_host = peers, .to_peers = peers}), options);
    constexpr std::array specs{"round_robin(parameters=copies)",
                               "heft(parameters=copies)",
                               "heft(order=b_level,parameters=copies)",
                               "contiguous(parameters=copies)",
                               "etf",
                               "glb(parameters=copies)",
                               "pardnn",
                               "auto"};
    for (const RandomCase k : fewer_cases(0, specs.size() - 1, 2)) {
      const char* spec = specs[k];
      INFO(network << " in " << micro_batches << " on " << devices << " devices, " << spec);
      const Plan made = std::get<Plan>(planned(several.problem, spec));
      const Timeline expected = simulate_event(made.schedule, several.problem.platform);
      CHECK(expected.makespan == made.makespan);
      CHECK(measure(several.problem, made.schedule, expected).peak == made.peak);
      judge_training(several, made.schedule, alone, judged);
    }
    for (const RandomCase seed : fewer_cases(1, 4, 2)) {
      INFO(network << " in " << micro_batches << " on " << devices << " devices, at random from seed " << seed);
      judge_training(several, placed_at_random(several.problem, seed), alone, judged);
    }
  }
  INFO(network << " in " << micro_batches);
  CHECK(2 * judged.spread >= judged.schedules);                // on small networks planners often take one
  const bool shares_parameters = network.starts_with("lstm");  // the cell's, by all steps
  CHECK((judged.exact < judged.schedules) == shares_parameters);
  CHECK(judged.exact > 0);
}

TEST_CASE("placements of a chain with memory strategies in their parts train as one device does",
          "[validate][placement]") {
  const std::string network =
      GENERATE("mlp:layers=6,width=24,batch=6,classes=4", "resnet:blocks=4,channels=4,picture=16,batch=2,classes=5");
  const ProblemOptions options{.micro_batches = 2, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = trained(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  const Training several = training_of(network, gpus({.count = 2, .to_host = peers, .to_peers = peers}), options);
  Judged judged;
  for (const char* spec : {"contiguous|greedy_recompute", "round_robin|offload_greedy", "heft|dtr"}) {
    INFO(network << ", " << spec);
    const Bytes all = std::get<Plan>(planned(several.problem, spec)).peak;
    const PlanOutcome none = planned(several.problem, spec, Bytes{0});
    const std::optional<Bytes> least = std::get<Infeasible>(none).smallest;
    REQUIRE(least);
    for (const Bytes budget : {*least, all}) {
      const Plan made = std::get<Plan>(planned(several.problem, spec, budget));
      judge_training(several, made.schedule, alone, judged);
    }
  }
}

TEST_CASE("strategies that plan stages refuse the parts of a placement", "[validate][placement]") {
  const Training two = training_of("mlp:layers=3,width=8,batch=2,classes=3", gpus({.count = 2}), {});
  for (const std::string memory : {"rotor", "full_recompute", "quantize"}) {
    std::string why;
    try {
      planned(two.problem, "heft|" + memory);
    } catch (const InputError& error) {
      why = error.what();
    }
    CHECK(why == "strategy '" + memory +
                     "' plans the stages of 'mlp:layers=3,width=8,batch=2,classes=3', and 'heft' cuts it by ops");
  }
}

}  // namespace
}  // namespace plimsoll
