// Schedules on the GPU: they train as plain training does, take the memory that is predicted, and fail cleanly.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_error.h"
#include "validate/network_model.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

struct GpuTraining {
  Problem problem;
  std::unique_ptr<RunnableNetwork> network;
};

GpuTraining gpu_training(Backend& backend, const std::string& reference, const ProblemOptions& options) {
  NamedNetwork named = named_network(reference);
  const std::optional<Optimizer> updates = named.view == View::chain ? std::optional(options.optimizer) : std::nullopt;
  const auto plain = backend.prepared(std::move(named.network));
  return {problem_of(model_of(plain->network(), named.view), one_gpu(), options),
          backend.prepared(named_network(reference, updates).network)};
}

Replayed run_on_gpu(GpuTraining& training, const Schedule& schedule) {
  ReplayOptions options{.poisons = true, .keeps_values = true};
  options.expected = simulate_event(schedule, training.problem.platform);
  std::variant<Replayed, ReplayFailure> outcome = replay(training.problem, schedule, *training.network, options);
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::move(std::get<Replayed>(outcome));
}

const Schedule& planned_schedule(const PlanOutcome& outcome) {
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(outcome).schedule;
}

/// Between the least that a strategy can do and what it takes when it is free.
std::optional<Bytes> middle_budget(const Problem& problem, const std::string& spec) {
  const PlanOutcome nothing = planned(problem, spec, Bytes{0});
  if (std::holds_alternative<Plan>(nothing)) return std::nullopt;
  const std::optional<Bytes> least = std::get<Infeasible>(nothing).smallest;
  if (!least) return std::nullopt;
  const PlanOutcome free = planned(problem, spec);
  return Bytes{(least->count + std::get<Plan>(free).peak.count) / 2};
}

const std::vector<std::string> networks{
    "mlp:layers=5,width=24,batch=6,classes=4", "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
    "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20", "lstm:steps=6,width=8,batch=4,classes=3"};

/// Here and there they round other sums: alike within bf16 only.
const std::vector<std::string> networks_in_bf16{
    "mlp:layers=5,width=24,batch=6,classes=4,values=bf16",
    "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5,values=bf16",
    "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20,values=bf16",
    "decoder:layers=2,width=16,heads=4,kv_heads=2,inner=24,sequence=8,batch=2,vocabulary=20,experts=4,values=bf16"};

TEST_CASE("schedules train on the GPU as store_all does there, bit for bit", "[cuda]") {
  std::vector<std::string> all = networks;
  all.insert(all.end(), networks_in_bf16.begin(), networks_in_bf16.end());
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const auto backend = cuda_backend({.allocation = allocation});
  for (const std::string& network : all) {
    GpuTraining training = gpu_training(*backend, network, {.micro_batches = 2, .optimizer = Optimizer::adam});
    const PlanOutcome plain = planned(training.problem, "store_all");
    const Replayed expected = run_on_gpu(training, planned_schedule(plain));
    CHECK(expected.values.size() > 2);
    for (const char* spec : {"full_recompute", "rotor", "chen_sqrt", "save_on_cpu", "vdnn", "zero_offload",
                             "rotor|offload_greedy", "offload_fractional"}) {
      INFO(network << ", " << spec);
      const PlanOutcome outcome = planned(training.problem, spec, middle_budget(training.problem, spec));
      const Schedule& schedule = planned_schedule(outcome);
      const Replayed run = run_on_gpu(training, schedule);
      CHECK(differing(run, expected).empty());
      CHECK(run.values.size() > 2);  // gradients that go to the host are gone in the end
      const Platform& platform = training.problem.platform;
      CHECK(recount(schedule, run.timeline, platform)[0] == run.timeline.peaks[0].bytes);
      REQUIRE(run.allocators.size() == platform.memories.size());
      REQUIRE(run.allocators[0]);
      CHECK(run.allocators[0]->reserved >= run.allocators[0]->allocated);
    }
  }
}

TEST_CASE("the GPU and the CPU train alike, to the rounding of their sums", "[cuda]") {
  const auto backend = cuda_backend({});
  for (const std::string& network : networks) {
    INFO(network);
    const ProblemOptions options{.micro_batches = 2, .optimizer = Optimizer::sgd};
    GpuTraining gpu = gpu_training(*backend, network, options);
    const Training cpu = training_of(network, one_gpu(), options);
    const PlanOutcome on_gpu = planned(gpu.problem, "store_all"), on_cpu = planned(cpu.problem, "store_all");
    const Replayed here = run_on_gpu(gpu, planned_schedule(on_gpu)), there = replayed(cpu, planned_schedule(on_cpu));
    REQUIRE(here.values.size() == there.values.size());
    for (const auto& [name, value] : there.values) {
      INFO(name);
      CHECK(relative_difference(here, there, name) <= 1e-3);  // a ReLU or a maximum may fall on the other side
    }
  }
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

TEST_CASE("out of memory names step and buffer, and all device memory is back", "[cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const auto backend = cuda_backend({.allocation = allocation});
  GpuTraining training = gpu_training(*backend, "mlp:layers=6,width=1024,batch=4096,classes=4", {});
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = planned_schedule(outcome);
  run_on_gpu(training, schedule);  // libraries have taken what they keep for themselves
  training.problem.platform.memories[0].capacity = Bytes{60 << 20};
  const auto failed = [&] {
    const auto run = replay(training.problem, schedule, *training.network, {});
    REQUIRE(std::holds_alternative<ReplayFailure>(run));
    return std::get<ReplayFailure>(run).what;
  };
  const std::string first = failed();
  INFO(first);
  CHECK(first.starts_with("out of memory in 'gpu0': step "));
  CHECK(first.find(" B, the allocator has no more") != std::string::npos);
  const std::size_t free = free_bytes();
  failed();
  CHECK(free_bytes() == free);
  training.problem.platform.memories[0].capacity = Bytes{1 << 10};
  CHECK(failed() ==
        "out of memory in 'gpu0': before the first step: buffer 0 ('layer0.weight') needs 4194304 B, the allocator has "
        "no more");
}

TEST_CASE("a platform of more devices than there are GPUs is refused", "[cuda]") {
  const auto backend = cuda_backend({});
  GpuTraining training = gpu_training(*backend, networks[0], {});
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule schedule = planned_schedule(outcome);
  training.problem.platform.devices.resize(1000, training.problem.platform.devices[0]);
  const ReplayPlan plan = std::get<ReplayPlan>(replay_plan(training.problem, schedule, training.network->network()));
  const auto run = training.network->run(training.problem, schedule, plan, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  CHECK(std::get<ReplayFailure>(run).what.find("has 1000 devices, this machine ") != std::string::npos);
}

TEST_CASE("an op of a kind that has no kernel is named with its step", "[cuda]") {
  const auto backend = cuda_backend({});
  GpuTraining training = gpu_training(*backend, networks[0], {});
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = planned_schedule(outcome);
  Network strange = named_network(networks[0]).network;
  strange.graph.ops[1].kind = "mystery";  // the first ReLU
  training.network = backend->prepared(std::move(strange));
  const auto run = replay(training.problem, schedule, *training.network, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  CHECK(std::get<ReplayFailure>(run).what ==
        "step 0 ('layer0.relu'): the CUDA backend has no kernel of kind 'mystery'");
}

TEST_CASE("the machine's rates are numbers above zero", "[cuda]") {
  const auto backend = cuda_backend({});
  const auto rates = backend->measure({}, {}, 3, [](const std::string&) { return true; });
  REQUIRE(rates);
  for (const MeasuredRate& rate :
       {rates->to_host, rates->to_device, rates->both_ways, rates->to_host_latency, rates->to_device_latency,
        *rates->one_block_to_host, *rates->host_copies, rates->plain_traffic, *rates->host_update_traffic,
        rates->update_traffic, rates->launch, rates->allocation}) {
    CHECK(rate.lower_quartile > 0);
    CHECK(rate.median >= rate.lower_quartile);
  }
  CHECK(rates->slowdown.size() == 3);
  REQUIRE(rates->peaks.size() >= 2);
  for (const MeasuredPeak& peak : rates->peaks) CHECK(peak.flops.lower_quartile > 1e11);
  CHECK(rates->peaks.back().flops.median > rates->peaks.front().flops.median);  // fp16 on tensor cores above fp32
}

}  // namespace
}  // namespace plimsoll
