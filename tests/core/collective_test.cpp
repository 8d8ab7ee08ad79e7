// Ring all-reduce among replicas: its time, its meaning to check(), and readers that come too early.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/collective.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

constexpr Bytes gradient_bytes{8'000'000};
constexpr double latency_s = 2e-6, bandwidth = 25e9;

/// One op that makes a parameter's gradient from the input.
Graph one_gradient() {
  Graph graph;
  graph.name = "one gradient";
  graph.storages = 2;
  graph.tensors = {
      {.name = "x", .kind = TensorKind::input, .bytes = Bytes{1}, .storage = StorageId{0}},
      {.name = "g", .kind = TensorKind::parameter_gradient, .bytes = gradient_bytes, .storage = StorageId{1}}};
  graph.ops = {{.name = "b",
                .phase = Phase::backward,
                .duration = Seconds{1},
                .inputs = {TensorId{0}},
                .outputs = {TensorId{1}}}};
  return graph;
}

struct Reduced {
  Platform platform;
  Schedule schedule;
  std::vector<BufferId> gradients;
};

Reduced all_reduced(std::uint32_t n, Collectives how, bool wait_for_makers = true) {
  Reduced made{gpus({.count = n, .to_peers = BytesPerSecond{bandwidth}, .peer_latency = Seconds{latency_s}}), {}, {}};
  ScheduleBuilder builder;
  std::vector<Rank> ranks;
  for (std::uint32_t d = 0; d < n; ++d) {
    const BufferId input =
        builder.buffer({.tensor = TensorId{0}, .replica = d, .memory = MemoryId{d}, .bytes = Bytes{1}});
    const BufferId gradient =
        builder.buffer({.tensor = TensorId{1}, .replica = d, .memory = MemoryId{d}, .bytes = gradient_bytes});
    const StepId step = builder.add({.kind = StepKind::backward,
                                     .stream = builder.stream(DeviceId{d}, way::compute),
                                     .op = OpId{0},
                                     .replica = d,
                                     .work = {.seconds = Seconds{1}},
                                     .allocates = {input, gradient}});
    ranks.push_back({DeviceId{d}, {gradient}, wait_for_makers ? std::vector{step} : std::vector<StepId>{}});
    made.gradients.push_back(gradient);
  }
  ring_all_reduce(builder, made.platform, ranks, how);
  made.schedule = builder.finish();
  made.schedule.replicas = n;
  return made;
}

TEST_CASE("a ring all-reduce takes 2(n-1)(latency + bytes/(n bandwidth)), expanded or not, and sums all replicas",
          "[collective]") {
  for (const std::uint32_t n : {2U, 4U, 8U}) {
    for (const Collectives how : {Collectives::aggregated, Collectives::expanded}) {
      INFO(n << " devices, " << (how == Collectives::expanded ? "expanded" : "aggregated"));
      const Reduced made = all_reduced(n, how);
      CHECK(check(made.schedule, one_gradient(), made.platform).empty());
      const double rounds = 2.0 * (n - 1);
      const double expected = 1 + rounds * (latency_s + static_cast<double>(gradient_bytes.count) / (n * bandwidth));
      CHECK(simulate_event(made.schedule, made.platform).makespan.value == Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("without the all-reduce no replica has all contributions", "[collective]") {
  Reduced made = all_reduced(2, Collectives::aggregated);
  made.schedule.steps.resize(2);
  const std::vector<Violation> found = check(made.schedule, one_gradient(), made.platform);
  CHECK(std::ranges::any_of(found, [](const Violation& v) { return v.rule == Rule::incomplete; }));
}

TEST_CASE("an all-reduce that does not wait for the gradients is reported", "[collective]") {
  const Reduced made = all_reduced(3, Collectives::aggregated, false);
  const std::vector<Violation> found = check(made.schedule, one_gradient(), made.platform);
  CHECK(std::ranges::any_of(found, [](const Violation& v) { return v.rule == Rule::not_ordered; }));
}

TEST_CASE("a reader that waits for one of the ring's flows only is too early", "[collective]") {
  for (const bool all : {false, true}) {
    Graph graph = one_gradient();
    graph.ops.push_back(
        {.name = "update of g", .phase = Phase::update, .duration = Seconds{1}, .inputs = {TensorId{1}}});
    Reduced made{gpus({.count = 2}), {}, {}};
    ScheduleBuilder builder;
    std::vector<Rank> ranks;
    for (std::uint32_t d = 0; d < 2; ++d) {
      const BufferId input =
          builder.buffer({.tensor = TensorId{0}, .replica = d, .memory = MemoryId{d}, .bytes = Bytes{1}});
      const BufferId gradient =
          builder.buffer({.tensor = TensorId{1}, .replica = d, .memory = MemoryId{d}, .bytes = gradient_bytes});
      const StreamId stream = builder.stream(DeviceId{d}, way::compute);
      const StepId step = builder.add({.kind = StepKind::backward,
                                       .stream = stream,
                                       .op = OpId{0},
                                       .replica = d,
                                       .work = {.seconds = Seconds{1}},
                                       .allocates = {input, gradient}});
      ranks.push_back({DeviceId{d}, {gradient}, {step}});
    }
    const std::vector<StepId> flows = ring_all_reduce(builder, made.platform, ranks, Collectives::aggregated);
    for (std::uint32_t d = 0; d < 2; ++d) {
      builder.add({.kind = StepKind::update,
                   .stream = builder.stream(DeviceId{d}, way::compute),
                   .op = OpId{1},
                   .replica = d,
                   .work = {.seconds = Seconds{1}},
                   .reads = ranks[d].buffers,
                   .waits = all ? flows : std::vector{flows[1 - d]}});  // the flow that ends here
    }
    Schedule schedule = builder.finish();
    schedule.replicas = 2;
    const std::vector<Violation> found = check(schedule, graph, made.platform);
    const bool early = std::ranges::any_of(found, [](const Violation& v) { return v.rule == Rule::collective; });
    CHECK(early == !all);
    CHECK(found.empty() == all);
  }
}

}  // namespace
}  // namespace plimsoll
