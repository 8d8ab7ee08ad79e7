#pragma once
// One legal schedule for tests of check() to break.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/check.h"
#include "sim/lower/schedule_builder.h"
#include "tests/generate/problems.h"

namespace plimsoll {

/// input x -> f -> a; b reads a and w and makes w's gradient; the update changes w.
inline Graph small_graph() {
  Graph graph;
  graph.name = "small";
  const auto tensor = [&](const std::string& name, TensorKind kind) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{8}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::input), w = tensor("w", TensorKind::parameter);
  const TensorId a = tensor("a", TensorKind::activation), g = tensor("gradient of w", TensorKind::parameter_gradient);
  graph.ops.push_back({.name = "f", .phase = Phase::forward, .duration = Seconds{1}, .inputs = {x, w}, .outputs = {a}});
  graph.ops.push_back(
      {.name = "b", .phase = Phase::backward, .duration = Seconds{2}, .inputs = {a, x}, .outputs = {g}});
  graph.ops.push_back({.name = "update of w",
                       .phase = Phase::update,
                       .duration = Seconds{1},
                       .inputs = {w, g},
                       .mutates = {w},
                       .recomputable = false});
  return graph;
}

/// The legal schedule of two micro-batches, with `a` of the first one offloaded and brought back. Steps:
/// 0 f(0), 1 offload a(0), 2 f(1), 3 b(1), 4 prefetch a(0), 5 b(0), 6 update.
struct Draft {
  static constexpr TensorId x{0}, w{1}, a{2}, g{3};
  static constexpr OpId f{0}, b{1}, update{2};

  Graph graph = small_graph();
  Platform platform = gpus({.count = 2, .adam = BytesPerSecond{8}});
  ScheduleBuilder builder;
  StreamId compute, out, in;
  BufferId weight, gradient, x0, x1, a0, a1, a0_host, a0_back;
  std::vector<NewStep> steps;

  Draft() {
    compute = builder.stream(DeviceId{0}, way::compute);
    out = builder.stream(DeviceId{0}, way::device_to_host);
    in = builder.stream(DeviceId{0}, way::host_to_device);
    weight = buffer(w, 0, 0);
    gradient = buffer(g, 0, 0);
    x0 = buffer(x, 0, 0);
    x1 = buffer(x, 1, 0);
    a0 = buffer(a, 0, 0);
    a1 = buffer(a, 1, 0);
    a0_host = buffer(a, 0, 2);
    a0_back = buffer(a, 0, 0);
    const RouteId to_host = builder.route(MemoryId{0}, MemoryId{2}),
                  from_host = builder.route(MemoryId{2}, MemoryId{0});
    const Work copy_out{.bytes = Bytes{8}, .route = to_host}, copy_in{.bytes = Bytes{8}, .route = from_host};
    steps = {
        {.kind = StepKind::forward,
         .stream = compute,
         .op = f,
         .work = {.seconds = Seconds{1}},
         .reads = {weight},
         .allocates = {x0, a0}},
        {.kind = StepKind::offload,
         .stream = out,
         .work = copy_out,
         .reads = {a0},
         .allocates = {a0_host},
         .waits = {StepId{0}}},
        {.kind = StepKind::forward,
         .stream = compute,
         .op = f,
         .micro_batch = 1,
         .work = {.seconds = Seconds{1}},
         .reads = {weight},
         .allocates = {x1, a1}},
        {.kind = StepKind::backward,
         .stream = compute,
         .op = b,
         .micro_batch = 1,
         .work = {.seconds = Seconds{2}},
         .reads = {a1, x1},
         .allocates = {gradient}},
        {.kind = StepKind::prefetch,
         .stream = in,
         .work = copy_in,
         .reads = {a0_host},
         .allocates = {a0_back},
         .waits = {StepId{1}, StepId{3}}},
        {.kind = StepKind::backward,
         .stream = compute,
         .op = b,
         .work = {.seconds = Seconds{2}},
         .reads = {a0_back, x0},
         .writes = {gradient},
         .waits = {StepId{4}}},
        {.kind = StepKind::update,
         .stream = compute,
         .op = update,
         .work = {.seconds = Seconds{1}},
         .reads = {gradient},
         .writes = {weight}},
    };
  }

  BufferId buffer(TensorId t, std::uint32_t micro_batch, std::uint32_t memory) {
    return builder.buffer({.tensor = t, .micro_batch = micro_batch, .memory = MemoryId{memory}, .bytes = Bytes{8}});
  }

  Schedule schedule() const {
    ScheduleBuilder copy = builder;
    copy.resident(weight);
    for (const NewStep& step : steps) copy.add(step);
    Schedule made = copy.finish();
    made.micro_batches = 2;
    return made;
  }

  std::vector<Violation> judged() const { return check(schedule(), graph, platform); }
};

inline bool reports(const std::vector<Violation>& found, Rule rule, std::optional<std::uint32_t> step = {},
                    std::optional<BufferId> buffer = {}) {
  return std::ranges::any_of(found, [&](const Violation& v) {
    return v.rule == rule && (!step || (v.step && v.step->index == *step)) && (!buffer || v.buffer == buffer);
  });
}

/// The update on the host, on a copy of the weight that is there from the start: 6 the gradient's copy, 7 update, 8 the
/// new weight's copy back.
struct HostDraft : Draft {
  BufferId weight_on_host, gradient_on_host;

  HostDraft() {
    weight_on_host = buffer(w, 0, 2);
    gradient_on_host = buffer(g, 0, 2);
    builder.resident(weight_on_host);
    steps.pop_back();
    steps.push_back({.kind = StepKind::offload,
                     .stream = out,
                     .work = {.bytes = Bytes{8}, .route = builder.route(MemoryId{0}, MemoryId{2})},
                     .reads = {gradient},
                     .allocates = {gradient_on_host},
                     .waits = {StepId{5}}});
    steps.push_back({.kind = StepKind::update,
                     .stream = builder.stream(DeviceId{0}, way::on_host),
                     .op = update,
                     .work = {.seconds = Seconds{24.0 / (7 * 8)}},  // gradient read, weight read and written
                     .reads = {gradient_on_host},
                     .writes = {weight_on_host},
                     .waits = {StepId{6}}});
    steps.push_back({.kind = StepKind::prefetch,
                     .stream = in,
                     .work = {.bytes = Bytes{8}, .route = builder.route(MemoryId{2}, MemoryId{0})},
                     .reads = {weight_on_host},
                     .writes = {weight},
                     .waits = {StepId{5}, StepId{7}}});
  }
};

}  // namespace plimsoll
