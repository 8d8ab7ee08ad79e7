// What the replay refuses, how it fails, and that it would notice a schedule that goes wrong.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

const std::string small_mlp = "mlp:layers=4,width=24,batch=6,classes=4";

std::string complaint(const Training& training, const Schedule& schedule) {
  const auto outcome = run_of(training, schedule, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(outcome));
  return std::get<ReplayFailure>(outcome).what;
}

TEST_CASE("a schedule that check() rejects is refused before anything runs", "[validate]") {
  const Training training = training_of(small_mlp, one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  Schedule schedule = std::get<Plan>(outcome).schedule;
  schedule.steps.pop_back();
  CHECK(complaint(training, schedule).starts_with("refused, the schedule is not legal: incomplete: "));
}

TEST_CASE("a step that does not fit names itself and its buffer, and everything is given back", "[validate]") {
  Training training = training_of(small_mlp, one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Bytes peak = simulate_event(schedule, training.problem.platform).peaks[0].bytes;
  training.problem.platform.memories[0].capacity = peak;
  replayed(training, schedule);  // exactly enough
  training.problem.platform.memories[0].capacity = peak - Bytes{1};
  CHECK(complaint(training, schedule).starts_with("out of memory in 'gpu0': step "));
  training.problem.platform.memories[0].capacity = Bytes{1};
  CHECK(complaint(training, schedule) ==
        "out of memory in 'gpu0': before the first step: buffer 0 ('layer0.weight') needs 2304 B, 1 B are free");
}

// Of one iteration, so that all runs have the same gradients.
TEST_CASE("each group of parameters is trained as if its optimizer had all", "[validate][groups]") {
  const std::vector<ParameterGroup> groups{{"*.bias", Optimizer::sgd}, {"layer[12]*", Optimizer::momentum}};
  const auto run = [&](Optimizer rest, std::vector<ParameterGroup> of, const std::string& spec) {
    const Training training =
        training_of(small_mlp, one_gpu(), {.micro_batches = 2, .optimizer = rest, .parameter_groups = std::move(of)});
    const PlanOutcome outcome = planned(training.problem, spec);
    return replayed(training, std::get<Plan>(outcome).schedule).values;
  };
  const auto sgd = run(Optimizer::sgd, {}, "store_all"), momentum = run(Optimizer::momentum, {}, "store_all"),
             adam = run(Optimizer::adam, {}, "store_all");
  CHECK(sgd.at("layer0.weight") != adam.at("layer0.weight"));
  for (const char* spec : {"store_all", "chen_sqrt", "zero_offload"}) {
    const auto grouped = run(Optimizer::adam, groups, spec);
    for (const std::string layer : {"layer0", "layer1", "layer2", "layer3"}) {
      INFO(spec << " " << layer);
      CHECK(grouped.at(layer + ".bias") == sgd.at(layer + ".bias"));
      const bool is_momentum = layer == "layer1" || layer == "layer2";
      CHECK(grouped.at(layer + ".weight") == (is_momentum ? momentum : adam).at(layer + ".weight"));
    }
    CHECK(grouped.contains("state 0 of layer1.weight"));
    CHECK(!grouped.contains("state 1 of layer1.weight"));
    CHECK(!grouped.contains("state 0 of layer1.bias"));
  }
}

TEST_CASE("an op of a kind that has no kernel is named with its step", "[validate]") {
  Training training = training_of(small_mlp, one_gpu());
  training.network.kernels[1] = {};  // the first ReLU's
  const PlanOutcome outcome = planned(training.problem, "store_all");
  CHECK(complaint(training, std::get<Plan>(outcome).schedule) ==
        "step 0 ('layer0.relu'): the CPU backend has no kernel of kind 'relu'");
}

TEST_CASE("an op that computes at a host and is no update is refused: no kernel runs there", "[validate]") {
  Training training = training_of(small_mlp, one_gpu());
  Problem& problem = training.problem;
  Memory& host = problem.platform.memories[1];
  host.peak[problem.graph.source.dtype] = FlopsPerSecond{1e9};
  host.bandwidth = BytesPerSecond{1e9};
  const OpId first{0};
  Tape tape;
  tape.actions = {run_at(place::host, first)};
  for (const TensorId t : problem.graph[first].inputs) {
    if (problem.graph[t].kind == TensorKind::parameter) tape.homes.push_back({t, {place::device, place::host}});
    if (problem.graph[t].kind == TensorKind::input)
      tape.actions.push_back(on_copy_at(place::host, ActionKind::drop, t));
  }
  for (const TensorId t : problem.graph[first].outputs) {
    tape.actions.push_back(along(way::host_to_device, ActionKind::move, t));
  }
  for (std::uint32_t o = 1; o < problem.graph.ops.size(); ++o) tape.actions.push_back(run(OpId{o}));
  tape = with_drops(problem.graph, tape);
  const Partition partition = one_device(problem.graph, 1, 1);
  const Schedule schedule = std::get<Schedule>(lower(problem, partition, std::span(&tape, 1)));
  REQUIRE(check(schedule, problem.graph, problem.platform).empty());
  const std::string name = problem.graph[first].name;
  CHECK(complaint(training, schedule) ==
        "step 0 ('" + name + "') computes at a host, where the replay runs updates only");
}

TEST_CASE("a trace whose bytes are not those of the network here is refused", "[validate]") {
  Training training = training_of(small_mlp, one_gpu());
  training.problem.graph.ops[0].workspace += Bytes{64};
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const std::string why = complaint(training, std::get<Plan>(outcome).schedule);
  CHECK(why.starts_with("network '" + small_mlp + "': the workspace of 'layer0' has "));
}

TEST_CASE("a copy that is left out spoils the result: the proof can fail", "[validate]") {
  const Training training = training_of(small_mlp, one_gpu());
  const PlanOutcome plain = planned(training.problem, "store_all"), outcome = planned(training.problem, "save_on_cpu");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  auto plan = std::get<ReplayPlan>(replay_plan(training.problem, schedule, training.network.network));
  const auto copies = [](const PlannedStep& step) { return step.copy.has_value(); };
  const auto prefetch = std::ranges::find_if(plan.steps.rbegin(), plan.steps.rend(), copies);
  REQUIRE(prefetch != plan.steps.rend());
  prefetch->copy->bytes = Bytes{4};  // of all its numbers, only the first arrives
  BlockPool pool;
  const auto run =
      replay_on_cpu(training.problem, schedule, plan, training.network, pool, {.poisons = true, .keeps_values = true});
  REQUIRE(std::holds_alternative<Replayed>(run));
  const Replayed good = replayed(training, std::get<Plan>(plain).schedule);
  CHECK_FALSE(differing(std::get<Replayed>(run), good).empty());
}

TEST_CASE("batch norm's running statistics move once a micro-batch, however often a forward is repeated",
          "[validate]") {
  const std::string network = "resnet:blocks=2,channels=4,picture=16,batch=2,classes=5";
  const Training once = training_of(network, one_gpu()), twice = training_of(network, one_gpu(), {.micro_batches = 2});
  const auto statistics = [](const Training& training, const std::string& spec) {
    const PlanOutcome outcome = planned(training.problem, spec);
    return replayed(training, std::get<Plan>(outcome).schedule).values.at("stem.norm.statistics");
  };
  CHECK(statistics(once, "store_all") == statistics(once, "full_recompute"));
  CHECK(statistics(twice, "store_all") == statistics(twice, "full_recompute"));
  CHECK(statistics(once, "store_all") != statistics(twice, "store_all"));
}

TEST_CASE("copies take their time on the platform's links", "[validate]") {
  const Training training =
      training_of("mlp:layers=3,width=64,batch=256,classes=4", gpus({.to_host = BytesPerSecond{20e6}}));
  const PlanOutcome outcome = planned(training.problem, "save_on_cpu");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Replayed run = replayed(training, schedule);
  std::size_t copies = 0;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (!schedule.steps[s].work.is_transfer()) continue;
    ++copies;
    const Seconds least = schedule.steps[s].work.bytes / BytesPerSecond{20e6};
    CHECK(run.timeline.steps[s].finish - run.timeline.steps[s].start >= least);
  }
  CHECK(copies > 1);
}

TEST_CASE("copies are held to the links of another platform where one is named", "[validate]") {
  const Training training = training_of("mlp:layers=3,width=64,batch=256,classes=4", one_gpu());
  const Platform slow = gpus({.to_host = BytesPerSecond{20e6}});
  const PlanOutcome outcome = planned(training.problem, "save_on_cpu");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const auto ran = run_of(training, schedule, {.links = &slow});
  REQUIRE(std::holds_alternative<Replayed>(ran));
  const Timeline& timeline = std::get<Replayed>(ran).timeline;
  std::size_t copies = 0;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (!schedule.steps[s].work.is_transfer()) continue;
    ++copies;
    CHECK(timeline.steps[s].finish - timeline.steps[s].start >= schedule.steps[s].work.bytes / BytesPerSecond{20e6});
  }
  CHECK(copies > 1);
}

}  // namespace
}  // namespace plimsoll
