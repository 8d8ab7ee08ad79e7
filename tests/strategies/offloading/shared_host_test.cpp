// Data-parallel replicas that share one host, each with a share of the parameters to update (as in ZeRO): what equal
// replicas do at the same time takes the time of one of them on its part of the host.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t replicas = 4;

/// One GPU and `share` of a host with 3.6 MB/s of memory and of a processor that updates 480 kB of parameters a second.
Platform part_of_host(std::uint32_t devices, double share) {
  Platform platform = gpus({.count = devices, .to_host = BytesPerSecond{1e6}, .adam = BytesPerSecond{share * 480e3}});
  platform.memories[devices].bandwidth = BytesPerSecond{share * 3.6e6};
  return platform;
}

/// Forwards of 1 s, backwards of 2 s, 100 kB of parameters a stage.
Chain six_stages() {
  Chain chain = even_chain(6);
  for (std::uint32_t i = 0; i < 6; ++i) {
    chain.parameters.push_back({"w" + std::to_string(i), Bytes{100'000}});
    chain.stages[i].parameters = {i};
  }
  return chain;
}

/// The schedule of one device on each of four, all of which have the last memory as their host. An update on the host
/// states the time that it takes on all of it.
Schedule on_each(const Schedule& one) {
  const auto memory = [](MemoryId m, std::uint32_t r) { return m.index == 0 ? MemoryId{r} : MemoryId{replicas}; };
  Schedule all = one;
  all.replicas = replicas;
  all.streams.clear();
  all.buffers.clear();
  all.steps.clear();
  all.routes.clear();
  all.resident.clear();
  all.buffer_list.clear();
  all.wait_list.clear();
  for (std::uint32_t r = 0; r < replicas; ++r) {
    const auto moved = [r](auto id, std::size_t count) {
      return decltype(id){static_cast<std::uint32_t>(id.index + r * count)};
    };
    for (Stream stream : one.streams) {
      stream.device = DeviceId{r};
      all.streams.push_back(stream);
    }
    for (Buffer buffer : one.buffers) {
      buffer.replica = r;
      buffer.memory = memory(buffer.memory, r);
      all.buffers.push_back(buffer);
    }
    for (const Endpoints& ends : one.routes) all.routes.push_back({memory(ends.from, r), memory(ends.to, r)});
    for (const BufferId b : one.resident) all.resident.push_back(moved(b, one.buffers.size()));
    for (const BufferId b : one.buffer_list) all.buffer_list.push_back(moved(b, one.buffers.size()));
    for (const StepId s : one.wait_list) all.wait_list.push_back(moved(s, one.steps.size()));
    for (Step step : one.steps) {
      step.replica = r;
      if (one[step.stream].way == way::on_host) step.work.seconds = (1.0 / replicas) * step.work.seconds;
      step.stream = moved(step.stream, one.streams.size());
      if (step.work.is_transfer()) step.work.route = moved(step.work.route, one.routes.size());
      for (Slice* slice : {&step.reads, &step.writes, &step.allocates, &step.frees}) {
        slice->first += r * static_cast<std::uint32_t>(one.buffer_list.size());
      }
      step.waits.first += r * static_cast<std::uint32_t>(one.wait_list.size());
      all.steps.push_back(step);
    }
  }
  return all;
}

TEST_CASE("four replicas that share a host take the time of one that has a quarter of it", "[updates]") {
  const std::string spec = GENERATE("zero_offload", "zero_offload(overlap=on)", "deep_optimizer_states(stride=2)",
                                    "deep_optimizer_states(stride=3)", "deep_optimizer_states(turns=off)");
  INFO(spec);
  const Problem quarter = problem_of(six_stages(), part_of_host(1, 1.0 / replicas), {.optimizer = Optimizer::adam});
  const Problem whole = problem_of(six_stages(), part_of_host(1, 1), {.optimizer = Optimizer::adam});
  const Plan made = judged(quarter, spec);
  const double alone = simulate_event(judged(whole, spec).schedule, whole.platform).makespan.value;
  const double shared = simulate_event(on_each(made.schedule), part_of_host(replicas, 1)).makespan.value;
  const double on_quarter = simulate_event(made.schedule, quarter.platform).makespan.value;
  CHECK(shared == Approx(on_quarter).epsilon(1e-9));
  CHECK(shared > 1.02 * alone);
}

}  // namespace
}  // namespace plimsoll
