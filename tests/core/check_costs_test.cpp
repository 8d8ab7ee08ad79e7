// What a file states about costs, against the trace and the platform: every falsehood is named, and what it declares
// as measured is let be.

#include <catch2/catch.hpp>

#include <functional>

#include "tests/core/draft.h"

namespace plimsoll {
namespace {

/// The draft's schedule, changed, as check() judges it.
std::vector<Violation> judged(const std::function<void(Draft&, Schedule&)>& change) {
  Draft draft;
  Schedule schedule = draft.schedule();
  change(draft, schedule);
  return check(schedule, draft.graph, draft.platform);
}

TEST_CASE("check names an op's time that is not the model's", "[check]") {
  const std::vector<Violation> found = judged([](Draft&, Schedule& s) { s.steps[3].work.seconds = Seconds{0}; });
  CHECK(reports(found, Rule::wrong_cost, 3));
  CHECK(found.at(0).what ==
        "step 3 ('b', micro-batch 1) states 0.000000 s and a workspace of 0 B; the model has 2.000000 s and 0 B");
  CHECK(judged([](Draft&, Schedule& s) { s.steps[3].work.seconds = Seconds{2 * (1 + 1e-12)}; }).empty());
}

TEST_CASE("an op's time on a device it was not measured on is the roofline's", "[check]") {
  const auto found = [](double seconds) {
    return judged([&](Draft& draft, Schedule& s) {
      Device& device = draft.platform.devices[0];
      device.takes_trace_times = false;
      device.peak["fp32"] = {10};
      device.memory_bandwidth = BytesPerSecond{4};
      device.launch_overhead = Seconds{0.5};
      draft.graph.source.dtype = "fp32";
      for (Op& op : draft.graph.ops) {
        op.flops = Flops{20};
        op.bytes_moved = Bytes{4};
      }
      for (Step& step : s.steps) {
        if (step.op != no_op) step.work.seconds = Seconds{seconds};
      }
    });
  };
  CHECK(found(2.5).empty());  // 20 / 10 computing, above 4 / 4 moving, and the launch
  CHECK(reports(found(2), Rule::wrong_cost, 0));
}

TEST_CASE("check names a kernel that the memory bounds and does not say so, and one that says so in vain", "[check]") {
  const auto found = [](std::vector<double> slowdown, std::int64_t bytes, bool says) {
    return judged([&](Draft& draft, Schedule& s) {
      Device& device = draft.platform.devices[0];
      device.memory_overlap_slowdown = std::move(slowdown);
      device.peak["fp32"] = {10};
      device.memory_bandwidth = BytesPerSecond{4};
      draft.graph.source.dtype = "fp32";
      for (Op& op : draft.graph.ops) {
        op.flops = Flops{20};
        op.bytes_moved = Bytes{bytes};
      }
      for (Step& step : s.steps) {
        if (step.op != no_op && s[step.stream].way == way::compute) step.memory_bound = says;
      }
    });
  };
  // 20 / 10 computing: 8 bytes take as long, 7 do not.
  CHECK(found({1, 2}, 8, true).empty());
  CHECK(reports(found({1, 2}, 8, false), Rule::wrong_cost, 0));
  CHECK(found({1, 2}, 7, false).empty());
  CHECK(reports(found({1, 2}, 7, true), Rule::wrong_cost, 0));
  CHECK(found({}, 8, false).empty());
  CHECK(reports(found({}, 8, true), Rule::wrong_cost, 0));
}

TEST_CASE("an update on a device takes as long as Adam takes for what it moves", "[check]") {
  const auto found = [](std::optional<BytesPerSecond> adam, double seconds) {
    return judged([&](Draft& draft, Schedule& s) {
      Device& device = draft.platform.devices[0];
      device.memory_bandwidth = BytesPerSecond{28};
      device.adam = adam;
      draft.graph.ops[2].duration.reset();
      draft.graph.ops[2].bytes_moved = Bytes{56};
      draft.graph.ops[2].flops = Flops{0};
      device.takes_trace_times = false;
      draft.graph.source.device = device.model = "M";
      s.steps[6].work.seconds = Seconds{seconds};
    });
  };
  CHECK(found(std::nullopt, 2).empty());
  CHECK(found(BytesPerSecond{2}, 4).empty());
  CHECK(reports(found(BytesPerSecond{2}, 2), Rule::wrong_cost, 6));
}

TEST_CASE("check holds a workspace against the run that the step makes", "[check]") {
  const auto found = [](std::int64_t first, std::int64_t second) {
    return judged([&](Draft& draft, Schedule& s) {
      draft.graph.ops[1].workspace = Bytes{5};
      draft.graph.ops[1].accumulate_workspace = Bytes{3};
      s.steps[3].workspace = Bytes{first};
      s.steps[5].workspace = Bytes{second};
    });
  };
  CHECK(found(5, 3).empty());  // the first backward makes the gradient, the second adds to it
  CHECK(reports(found(3, 3), Rule::wrong_cost, 3));
  CHECK(reports(found(5, 5), Rule::wrong_cost, 5));
  CHECK(reports(found(0, 0), Rule::wrong_cost, 3));
}

TEST_CASE("a run that keeps nothing has its own time and workspace, and both of the same run", "[check]") {
  Draft draft;
  Op& f = draft.graph.ops[0];
  draft.graph.tensors.push_back({.name = "inner", .bytes = Bytes{4}, .storage = StorageId{draft.graph.storages++}});
  const TensorId inner = id_at<TensorId>(draft.graph.tensors.size() - 1);
  f.outputs.push_back(inner);
  f.saved = {inner};
  f.workspace = Bytes{6};
  f.nograd_duration = Seconds{0.5};
  f.nograd_workspace = Bytes{2};
  const BufferId kept = draft.builder.buffer({.tensor = inner, .memory = MemoryId{0}, .bytes = Bytes{4}});
  draft.steps[0].allocates.push_back(kept);
  draft.steps[0].workspace = Bytes{6};
  draft.steps[2].work.seconds = Seconds{0.5};
  draft.steps[2].workspace = Bytes{2};
  SECTION("legal") {
    CHECK(draft.judged().empty());
  }
  SECTION("keeps, but takes the other's time") {
    draft.steps[0].work.seconds = Seconds{0.5};
    CHECK(reports(draft.judged(), Rule::wrong_cost, 0));
  }
  SECTION("keeps nothing, but takes the other's workspace") {
    draft.steps[2].workspace = Bytes{6};
    CHECK(reports(draft.judged(), Rule::wrong_cost, 2));
  }
  SECTION("keeps nothing of a run with gradients: a checkpoint without reentrance") {
    draft.steps[2].work.seconds = f.duration.value();
    CHECK(draft.judged().empty());
    draft.steps[2].workspace = Bytes{6};
    CHECK(reports(draft.judged(), Rule::wrong_cost, 2));
  }
}

TEST_CASE("check names a buffer whose bytes are not its range's", "[check]") {
  for (const std::int64_t bytes : {0, 1, 7, 9}) {
    const std::vector<Violation> found = judged([&](Draft& d, Schedule& s) { s.buffers[d.a0.index].bytes = {bytes}; });
    CHECK(reports(found, Rule::malformed, {}, Draft{}.a0));
  }
}

TEST_CASE("check names a copy that states more bytes, or time beside its route's", "[check]") {
  CHECK(reports(judged([](Draft&, Schedule& s) { s.steps[1].work.bytes = Bytes{9}; }), Rule::wrong_cost, 1));
  CHECK(reports(judged([](Draft&, Schedule& s) { s.steps[1].work.seconds = Seconds{1}; }), Rule::wrong_cost, 1));
  CHECK(reports(judged([](Draft&, Schedule& s) { s.steps[1].workspace = Bytes{1}; }), Rule::wrong_cost, 1));
}

TEST_CASE("check names a step on a stream of another kind", "[check]") {
  const auto moved = [](std::size_t step, StreamId Draft::*stream) {
    return judged([&](Draft& draft, Schedule& s) { s.steps[step].stream = draft.*stream; });
  };
  CHECK(reports(moved(3, &Draft::out), Rule::wrong_place, 3));      // an op among copies
  CHECK(reports(moved(1, &Draft::compute), Rule::wrong_place, 1));  // a copy among ops
  CHECK(reports(moved(1, &Draft::in), Rule::wrong_place, 1));       // out of the device on the stream into it
  const Way to_peer{place::device, MemoryId{1}};
  for (const Way way : {to_peer, way::on_host, way::disk_to_host}) {
    CHECK(reports(judged([&](Draft&, Schedule& s) { s.streams[1].way = way; }), Rule::wrong_place, 1));
  }
  CHECK(reports(judged([](Draft&, Schedule& s) { s.streams[1].device = DeviceId{1}; }), Rule::wrong_place, 1));
}

TEST_CASE("check names a copy between memories that no link connects", "[check]") {
  const std::vector<Violation> found = judged(
      [](Draft& d, Schedule&) { std::erase_if(d.platform.links, [](const Link& l) { return l.name == "pcie0"; }); });
  CHECK(reports(found, Rule::wrong_place, 1));
}

TEST_CASE("check names more compute streams than the device has", "[check]") {
  Draft draft;
  draft.steps[2].stream = draft.builder.stream(DeviceId{0}, way::compute, 1);
  draft.steps[3].waits = {StepId{2}};
  CHECK(reports(draft.judged(), Rule::malformed));
  Draft wide;
  wide.platform.devices[0].compute_streams = 2;
  wide.steps[2].stream = wide.builder.stream(DeviceId{0}, way::compute, 1);
  wide.steps[3].waits = {StepId{2}};
  CHECK(wide.judged().empty());
}

TEST_CASE("a host's update takes the host's time, at its Adam rate", "[check]") {
  HostDraft draft;
  draft.steps[7].work.seconds = Seconds{0.5};
  CHECK(reports(draft.judged(), Rule::wrong_cost, 7));
  HostDraft unknown;
  unknown.platform.memories[2].adam = {};
  CHECK(reports(unknown.judged(), Rule::wrong_cost, 7));
}

TEST_CASE("what a step declares as measured may be another time or workspace, but not fewer bytes", "[check]") {
  CHECK(judged([](Draft&, Schedule& s) {
          s.steps[3].measured = s.steps[4].measured = true;
          s.steps[3].work.seconds = Seconds{0.1};
          s.steps[3].workspace = Bytes{77};
          s.steps[4].work.seconds = Seconds{0.2};
        }).empty());
  const std::vector<Violation> found = judged([](Draft& draft, Schedule& s) {
    s.steps[4].measured = true;
    s.steps[4].work.bytes = Bytes{7};
    s.buffers[draft.a0_back.index].bytes = Bytes{8};
  });
  CHECK(reports(found, Rule::wrong_value, 4));
}

TEST_CASE("check names an output that an op makes and nobody holds", "[check]") {
  Draft draft;
  draft.graph.tensors.push_back({.name = "unread", .bytes = Bytes{4}, .storage = StorageId{draft.graph.storages++}});
  draft.graph.ops[1].outputs.push_back(id_at<TensorId>(draft.graph.tensors.size() - 1));
  CHECK(reports(draft.judged(), Rule::wrong_output, 3));
}

TEST_CASE("check names a network input that appears twice in one memory", "[check]") {
  Draft draft;
  const BufferId again = draft.buffer(Draft::x, 0, 0);
  draft.steps[5].reads = {draft.a0_back};
  draft.steps[5].allocates = {again};
  CHECK(reports(draft.judged(), Rule::repeated, 5, again));
}

TEST_CASE("check names a header that says otherwise when gradients appear", "[check]") {
  CHECK(reports(judged([](Draft&, Schedule& s) { s.gradients = Gradients::existing; }), Rule::malformed));
  Draft draft;
  draft.builder.resident(draft.gradient);
  draft.steps[3].allocates = {};
  draft.steps[3].writes = {draft.gradient};
  Schedule schedule = draft.schedule();
  CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::malformed, {}, draft.gradient));
  schedule.gradients = Gradients::existing;
  CHECK(check(schedule, draft.graph, draft.platform).empty());
}

TEST_CASE("check names a recomputation that is not called one, and a first run that is", "[check]") {
  CHECK(reports(judged([](Draft&, Schedule& s) { s.steps[2].kind = StepKind::recompute; }), Rule::malformed, 2));
  Draft draft;
  NewStep again{.kind = StepKind::forward,
                .stream = draft.compute,
                .op = Draft::f,
                .micro_batch = 1,
                .work = {.seconds = Seconds{1}},
                .reads = {draft.weight, draft.x1}};
  draft.steps.insert(draft.steps.begin() + 3, again);
  for (NewStep& step : draft.steps) {
    for (StepId& wait : step.waits) wait.index += wait.index >= 3 ? 1 : 0;
  }
  CHECK(reports(draft.judged(), Rule::malformed, 3));
  draft.steps[3].kind = StepKind::recompute;
  CHECK(draft.judged().empty());
}

TEST_CASE("check names a buffer that is overwritten before a reader on another stream is done", "[check]") {
  Draft draft;  // the gradient is copied away after the first backward, while the second one adds to it
  const BufferId away = draft.buffer(Draft::g, 0, 2);
  const NewStep copy{.kind = StepKind::offload,
                     .stream = draft.out,
                     .work = draft.steps[1].work,
                     .reads = {draft.gradient},
                     .allocates = {away},
                     .waits = {StepId{3}}};
  draft.steps.insert(draft.steps.begin() + 4, copy);
  draft.steps[6].waits = {StepId{5}};  // b(0) waits for the prefetch only
  const std::vector<Violation> found = draft.judged();
  CHECK(reports(found, Rule::not_ordered, 6, draft.gradient));
  CHECK(found.at(0).what ==
        "step 6 ('b', micro-batch 0) overwrites, without waiting for its reader step 4, buffer 1 ('gradient of w', "
        "micro-batch 0)");
  draft.steps[6].waits = {StepId{4}, StepId{5}};
  CHECK(draft.judged().empty());
}

TEST_CASE("more micro-batches or replicas than steps are refused before anything is counted by them", "[check]") {
  for (const std::uint32_t many : {3U, 1'000'000U, 4'294'967'294U}) {
    CHECK(reports(judged([&](Draft&, Schedule& s) { s.micro_batches = many; }), Rule::incomplete));
    CHECK(reports(judged([&](Draft&, Schedule& s) { s.replicas = many; }), Rule::incomplete));
    CHECK(reports(judged([&](Draft&, Schedule& s) { s.replicas = s.micro_batches = many; }), Rule::incomplete));
  }
  const std::vector<Violation> found = judged([](Draft&, Schedule& s) { s.micro_batches = 4'294'967'294U; });
  CHECK(found.at(0).what == "4294967294 micro-batches of 1 replicas take more than the 7 steps there are, for 3 ops");
}

}  // namespace
}  // namespace plimsoll
