// The CUDA replay on a made-up GPU with the CPU's kernels: streams run in random order as far as they may, so that a
// wait that is missing spoils the training.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "sim/memory/replay.h"
#include "strategies/models/chain_pass.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/cuda/cuda_replay.h"
#include "validate/reference/updates.h"

namespace plimsoll {
namespace {

/// The CPU's kernels, issued to streams.
CudaNetwork on_streams(const CpuNetwork& cpu) {
  CudaNetwork made;
  made.network = cpu.network;
  for (std::size_t o = 0; o < cpu.kernels.size(); ++o) {
    const Kernel& kernel = cpu.kernels[o];
    const auto issued = [&kernel](const KernelArguments& arguments, const Queue& queue) {
      fake::enqueue(queue.stream, [&kernel, arguments] { kernel.run(arguments); });
    };
    made.kernels.push_back({issued, kernel.scratch});
    made.host_kernels.push_back(plain_update(cpu.network.graph, cpu.network.graph.ops[o]));
  }
  return made;
}

std::variant<Replayed, ReplayFailure> run_on_fake(const Training& training, const Schedule& schedule,
                                                  Allocation allocation, CudaMachine& machine,
                                                  const ReplayOptions& options) {
  const auto plan = replay_plan(training.problem, schedule, training.network.network, options.addresses);
  REQUIRE(std::holds_alternative<ReplayPlan>(plan));
  CudaNetwork network = on_streams(training.network);
  return replay_on_cuda(training.problem, schedule, std::get<ReplayPlan>(plan), network, machine, allocation, options);
}

Replayed well_run(const Training& training, const Schedule& schedule, Allocation allocation, CudaMachine& machine,
                  std::optional<Timeline> expected) {
  ReplayOptions options{.poisons = true, .keeps_values = true};
  options.expected = std::move(expected);
  auto outcome = run_on_fake(training, schedule, allocation, machine, options);
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  CHECK(fake::early_uses() == 0);
  return std::move(std::get<Replayed>(outcome));
}

const Schedule& schedule_in(const PlanOutcome& outcome) {
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(outcome).schedule;
}

const std::vector<std::string> networks{
    "mlp:layers=5,width=24,batch=6,classes=4", "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
    "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20", "lstm:steps=6,width=8,batch=4,classes=3",
    "decoder:layers=2,width=16,heads=4,kv_heads=2,inner=24,sequence=8,batch=2,vocabulary=20,experts=4"};

/// Links as slow as kernels, so that copies and kernels are expected beside each other.
Platform slow_links() {
  constexpr BytesPerSecond slow{1e9};
  return gpus({.to_host = slow, .adam = slow, .to_disk = slow});
}

bool is_chunked(const Problem& problem, const Schedule& schedule) {
  return std::ranges::any_of(schedule.buffers,
                             [&](const Buffer& b) { return b.range_length != problem.graph[b.tensor].bytes; });
}

TEST_CASE("whatever the order in which streams come to it, every schedule trains as plain training does",
          "[fake_cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const std::string network = GENERATE(from_range(networks));
  const Training training = training_of(network, slow_links(), {.micro_batches = 2, .optimizer = Optimizer::adam});
  const Platform& platform = training.problem.platform;
  const PlanOutcome plain = planned(training.problem, "store_all");
  const Replayed alone = replayed(training, schedule_in(plain));
  for (const char* spec : {"store_all", "full_recompute", "rotor", "save_on_cpu", "vdnn", "capuchin", "zero_offload",
                           "zero_infinity", "twinflow", "rotor|offload_greedy", "offload_fractional"}) {
    const PlanOutcome outcome = planned(training.problem, spec);
    Schedule schedule = schedule_in(outcome);
    const Timeline simulated = simulate_event(schedule, platform);
    Timeline nonsense = simulated;
    for (Interval& ran : nonsense.steps) ran = {Seconds{9} - ran.start, Seconds{9} - ran.finish};
    for (const auto& expected : {std::optional(simulated), std::optional<Timeline>(), std::optional(nonsense)}) {
      for (const RandomCase seed : random_cases(1, 3)) {
        INFO(network << ", " << spec << ", seed " << seed);
        fake::begin({.seed = seed});
        CudaMachine machine;
        for (int repetition = 0; repetition < 2; ++repetition) {  // the second time in memory that was used
          const Replayed run = well_run(training, schedule, allocation, machine, expected);
          REQUIRE(differing(run, alone).empty());
          REQUIRE(run.values.size() > 2);  // gradients that go to the host are gone in the end
          CHECK(recount(schedule, run.timeline, platform)[0] == run.timeline.peaks[0].bytes);
          if (allocation == Allocation::stream_ordered || !expected || is_chunked(training.problem, schedule)) continue;
          if (expected->makespan != simulated.makespan || repetition > 0) continue;
          schedule.budget.reset();
          const ReservedPeak predicted = peak_reserved(schedule, simulated, platform, usual(AllocatorKind::cuda))[0];
          const bool in_order = expected->steps == simulated.steps;
          if (in_order) CHECK(run.allocators[0]->reserved == predicted.reserved);
        }
      }
    }
  }
}

TEST_CASE("a run from one block at planned addresses trains the same, whatever the order of streams", "[fake_cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const Training training = training_of(networks[0], slow_links(), {.micro_batches = 2, .optimizer = Optimizer::adam});
  const PlanOutcome plain = planned(training.problem, "store_all");
  const Replayed alone = replayed(training, schedule_in(plain));
  for (const char* spec : {"rotor", "save_on_cpu", "vdnn", "zero_infinity", "rotor|offload_greedy"}) {
    const PlanOutcome outcome = planned(training.problem, spec);
    const Schedule& schedule = schedule_in(outcome);
    const Addresses addresses = plan_addresses(schedule, training.problem.platform, {});
    for (const RandomCase seed : random_cases(1, 3)) {
      INFO(spec << ", seed " << seed);
      fake::begin({.seed = seed});
      CudaMachine machine;
      const auto outcome_of_run = run_on_fake(training, schedule, allocation, machine,
                                              {.poisons = true, .keeps_values = true, .addresses = &addresses});
      if (const auto* failure = std::get_if<ReplayFailure>(&outcome_of_run)) FAIL(failure->what);
      const Replayed& run = std::get<Replayed>(outcome_of_run);
      CHECK(differing(run, alone).empty());
      CHECK(run.allocators[0]->allocated == addresses.blocks[0].size);
    }
  }
}

TEST_CASE("three GPUs in a pipeline train as one does", "[fake_cuda]") {
  const std::string network = GENERATE(from_range(networks));
  if (network.starts_with("lstm")) return;  // its parts share parameters
  constexpr BytesPerSecond slow{1e9};
  const ProblemOptions options{.micro_batches = 4, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Training three = training_of(network, gpus({.count = 3, .to_host = slow, .to_peers = slow}), options);
  const Partition partition = one_forward_one_backward(three.problem, {0, 2, 4});
  std::vector<Tape> tapes;
  for (std::uint32_t p = 0; p < 3; ++p) {
    const ChainPart part = chain_part(three.problem, partition.parts[p]);
    tapes.push_back(
        chain_tape(three.problem, partition, PartId{p}, part, store_all_sequence(part.chain.stages.size())));
  }
  const std::variant<Schedule, std::string> made = lower(three.problem, partition, tapes);
  const auto& schedule = std::get<Schedule>(made);
  const PlanOutcome plain = planned(one.problem, "store_all");
  const Replayed alone = replayed(one, schedule_in(plain));
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  for (const RandomCase seed : random_cases(1, 5)) {
    INFO(network << ", seed " << seed);
    fake::begin({.seed = seed, .gpus = 3});
    CudaMachine machine;
    const Replayed run =
        well_run(three, schedule, allocation, machine, simulate_event(schedule, three.problem.platform));
    CHECK(differing(run, alone).empty());
    CHECK(run.values.size() == alone.values.size());
    CHECK(fake::detours() == 0);
  }
}

TEST_CASE("what one stream frees serves others in stream order, and a pool keeps it for the next run", "[fake_cuda]") {
  const Training training = training_of(networks[0], slow_links(), {.micro_batches = 2, .optimizer = Optimizer::adam});
  for (const char* spec : {"rotor", "save_on_cpu", "vdnn", "zero_infinity", "rotor|offload_greedy"}) {
    const PlanOutcome outcome = planned(training.problem, spec);
    const Schedule& schedule = schedule_in(outcome);
    ReplayOptions options;
    options.expected = simulate_event(schedule, training.problem.platform);
    fake::begin({});
    CudaMachine machine;
    const auto peaks = [&](bool empties) {
      options.empties_pools = empties;
      return *std::get<Replayed>(run_on_fake(training, schedule, Allocation::stream_ordered, machine, options))
                  .allocators[0];
    };
    const AllocatorPeaks first = peaks(true);
    CHECK(first.allocated == options.expected->peaks[0].bytes);  // in order no byte is reserved that is not in use
    CHECK(first.reserved == first.allocated);
    const int trims = fake::trims();
    CHECK(peaks(false).reserved == first.reserved);
    CHECK(fake::trims() == trims);
  }
}

TEST_CASE("out of memory names step and buffer, and all device memory is back", "[fake_cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const Training training = training_of("mlp:layers=6,width=256,batch=4096,classes=4", one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  fake::begin({.memory = 20 << 20});
  CudaMachine machine;
  const auto failed = run_on_fake(training, schedule_in(outcome), allocation, machine, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(failed));
  const std::string& why = std::get<ReplayFailure>(failed).what;
  INFO(why);
  CHECK(why.starts_with("out of memory in 'gpu0': step "));
  CHECK(why.ends_with(" B, the allocator has no more"));
  CHECK(fake::device_bytes() == 0);
  fake::begin({.memory = 1 << 10});
  CudaMachine tiny;
  const auto at_once = run_on_fake(training, schedule_in(outcome), allocation, tiny, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(at_once));
  CHECK(std::get<ReplayFailure>(at_once).what ==
        "out of memory in 'gpu0': before the first step: buffer 0 ('layer0.weight') needs 262144 B, the allocator has "
        "no more");
}

TEST_CASE("a CUDA error names the step, and all device memory is back", "[fake_cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const Training training = training_of("mlp:layers=2,width=24,batch=6,classes=4", one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  // The first record is the clock's base, the next two are step 0's, and in stream order a third for what it frees:
  // then comes the start of step 1.
  fake::begin({.record_that_fails = allocation == Allocation::caching ? 3 : 4});
  CudaMachine machine;
  const auto failed = run_on_fake(training, schedule_in(outcome), allocation, machine, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(failed));
  CHECK(std::get<ReplayFailure>(failed).what ==
        "step 1 ('layer1'): cudaEventRecord failed: cudaErrorLaunchFailure (made up)");
  CHECK(fake::device_bytes() == 0);
}

TEST_CASE("versions of a parameter are refused before anything is allocated", "[fake_cuda]") {
  constexpr BytesPerSecond slow{1e9};
  const Training two = training_of(networks[0], gpus({.count = 2, .to_host = slow, .to_peers = slow}),
                                   {.micro_batches = 4, .optimizer = Optimizer::sgd});
  fake::begin({.gpus = 2});
  CudaMachine machine;
  const auto refused =
      run_on_fake(two, schedule_in(planned(two.problem, "pipedream")), Allocation::caching, machine, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(refused));
  CHECK(std::get<ReplayFailure>(refused).what ==
        "the CUDA backend updates in place only: it keeps no versions of a parameter");
}

TEST_CASE("sums of a gradient of several devices are refused before anything is allocated", "[fake_cuda]") {
  constexpr BytesPerSecond slow{1e9};
  const Training two = training_of("lstm:steps=5,width=8,batch=3,classes=4",
                                   gpus({.count = 2, .to_host = slow, .to_peers = slow}), {.micro_batches = 2});
  fake::begin({.gpus = 2});
  CudaMachine machine;
  const auto why_refused = [&](const char* strategy) {
    const auto refused =
        run_on_fake(two, schedule_in(planned(two.problem, strategy)), Allocation::caching, machine, {});
    REQUIRE(std::holds_alternative<ReplayFailure>(refused));
    CHECK(fake::device_bytes() == 0);
    return std::get<ReplayFailure>(refused).what;
  };
  const std::string one_updates = why_refused("1f1b(shared_updates=first)");
  INFO(one_updates);
  CHECK(one_updates.starts_with("step "));
  CHECK(one_updates.ends_with(": the CUDA backend adds no gradients of several devices"));
  CHECK(why_refused("1f1b") == "the CUDA backend has no collectives");  // each device updates a copy of its own
}

TEST_CASE("packed forms are refused by name before anything is allocated", "[fake_cuda]") {
  const Training training = training_of(networks[0] + ",view=graph", one_gpu());
  fake::begin({.gpus = 1});
  CudaMachine machine;
  const auto refused = run_on_fake(training, schedule_in(planned(training.problem, "quantize(tensors=linear)")),
                                   Allocation::caching, machine, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(refused));
  const std::string why = std::get<ReplayFailure>(refused).what;
  INFO(why);
  CHECK(why.starts_with("step "));
  CHECK(why.find(": the CUDA backend has no kernel for '") != std::string::npos);
  CHECK(fake::device_bytes() == 0);
}

TEST_CASE("more devices than GPUs, and ops without a kernel, are refused before anything is allocated", "[fake_cuda]") {
  const Training three = training_of(networks[0], gpus({.count = 3, .to_host = BytesPerSecond{1e9}}));
  const PlanOutcome outcome = planned(three.problem, "store_all");
  fake::begin({.gpus = 2});
  CudaMachine machine;
  const auto refused = run_on_fake(three, schedule_in(outcome), Allocation::caching, machine, {});
  CHECK(std::get<ReplayFailure>(refused).what ==
        "platform '" + three.problem.platform.name + "' has 3 devices, this machine 2 GPUs");

  const Training one = training_of(networks[0], one_gpu());
  const PlanOutcome planned_one = planned(one.problem, "store_all");
  const Schedule& schedule = schedule_in(planned_one);
  const auto plan = replay_plan(one.problem, schedule, one.network.network);
  CudaNetwork network = on_streams(one.network);
  network.kernels[1] = {};  // the first ReLU's
  const auto run =
      replay_on_cuda(one.problem, schedule, std::get<ReplayPlan>(plan), network, machine, Allocation::caching, {});
  CHECK(std::get<ReplayFailure>(run).what == "step 0 ('layer0.relu'): the CUDA backend has no kernel of kind 'relu'");
  CHECK(fake::device_bytes() == 0);
}

}  // namespace
}  // namespace plimsoll
