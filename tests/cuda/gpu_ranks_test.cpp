// Ranks of a mesh on several GPUs: they train what the CPU's ranks train. With one GPU nothing is tested here.

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>

#include "sim/bound/guaranteed_peak.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/cpu/cpu_backend.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

std::uint32_t gpus_here() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<std::uint32_t>(count) : 0;
}

Replayed run_on_ranks_of(Backend& backend, const std::string& network, const Problem& problem,
                         const Schedule& schedule) {
  auto made = backend.prepared_on_ranks(named_network(network).network, problem);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  ReplayOptions options{.poisons = true, .keeps_values = true};
  options.expected = simulate_event(schedule, problem.platform);
  auto outcome = replay(problem, schedule, *std::get<std::unique_ptr<RunnableNetwork>>(made), options);
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::get<Replayed>(std::move(outcome));
}

TEST_CASE("ranks on several GPUs train what the CPU's ranks train", "[cuda]") {
  const Allocation allocation = GENERATE(Allocation::caching, Allocation::stream_ordered);
  const std::uint32_t count = GENERATE(2U, 4U);
  if (gpus_here() < count) return;
  const auto gpu = cuda_backend({.allocation = allocation});
  const auto cpu = cpu_backend();
  constexpr BytesPerSecond fast{20e9};
  for (const char* network :
       {"mlp:layers=4,width=16,batch=8,classes=8,view=graph,updates=momentum",
        "gpt:layers=2,width=16,heads=4,sequence=8,batch=4,vocabulary=20,view=graph,updates=momentum"}) {
    const Problem whole = problem_of(network_model(network), gpus({.count = count, .to_host = fast, .to_peers = fast}),
                                     {.micro_batches = 4});
    for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3", "megatron", "megatron(sequence=yes)"}) {
      INFO(network << ", " << spec << " on " << count);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = transformed(whole, passes);
      const PlanOutcome outcome = plan(problem, passes, std::nullopt);
      REQUIRE(std::holds_alternative<Plan>(outcome));
      const Schedule& schedule = std::get<Plan>(outcome).schedule;
      const Replayed here = run_on_ranks_of(*gpu, network, problem, schedule);
      const Replayed there = run_on_ranks_of(*cpu, network, problem, schedule);
      REQUIRE(here.values.size() == there.values.size());
      for (const auto& [name, value] : there.values) {
        INFO(name);
        CHECK(relative_difference(here, there, name) <= 1e-3);  // a ReLU may fall on the other side
      }
      const MemoryId own = problem.platform.devices.front().memory;
      CHECK(here.timeline.peaks[own.index].bytes <= guaranteed_peak(schedule, problem.platform, own));
    }
  }
}

TEST_CASE("exchanges of several GPUs take longer than nothing", "[cuda]") {
  if (gpus_here() < 2) return;
  const auto gpu = cuda_backend({});
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    CHECK(gpu->exchange_seconds(kind, 2, Bytes{1 << 20}, 3).median > 0);
  }
}

}  // namespace
}  // namespace plimsoll
