// One legal schedule, broken in one way for every rule that check() can report.

#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/core/draft.h"

namespace plimsoll {
namespace {

TEST_CASE("the schedule that the other tests break is legal", "[check]") {
  CHECK(Draft{}.judged().empty());
}

TEST_CASE("check names a wait that is not for an earlier step", "[check]") {
  Draft draft;
  Schedule schedule = draft.schedule();
  schedule.wait_list[schedule.steps[1].waits.first] = StepId{5};
  const std::vector<Violation> found = check(schedule, draft.graph, draft.platform);
  CHECK(reports(found, Rule::malformed, 1));
  CHECK(found.at(0).what == "step 1 names a wait for step 5, which is not earlier");
  schedule.wait_list[schedule.steps[1].waits.first] = StepId{1};
  CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::malformed, 1));
}

TEST_CASE("check names indices beyond the lists, and routes to nowhere, instead of reading them", "[check]") {
  Draft draft;
  Schedule schedule = draft.schedule();
  SECTION("buffer") {
    schedule.buffer_list[0] = BufferId{77};
  }
  SECTION("tensor") {
    schedule.buffers[2].tensor = TensorId{77};
  }
  SECTION("memory") {
    schedule.buffers[2].memory = MemoryId{77};
  }
  SECTION("op") {
    schedule.steps[0].op = OpId{77};
  }
  SECTION("implementation") {
    schedule.steps[0].implementation = 1;
  }
  SECTION("stream") {
    schedule.steps[0].stream = StreamId{77};
  }
  SECTION("route") {
    schedule.steps[1].work.route = RouteId{77};
  }
  SECTION("an unused route's memory") {
    schedule.routes.push_back({MemoryId{0}, MemoryId{77}});
  }
  SECTION("an unused route to where it begins") {
    schedule.routes.push_back({MemoryId{0}, MemoryId{0}});
  }
  SECTION("device") {
    schedule.streams[0].device = DeviceId{77};
  }
  SECTION("slice") {
    schedule.steps[6].reads.count = 99;
  }
  SECTION("waits") {
    schedule.steps[5].waits.count = 99;
  }
  SECTION("resident") {
    schedule.resident[0] = BufferId{77};
  }
  SECTION("collective") {
    schedule.steps[1].collective = CollectiveId{0};
  }
  CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::malformed));
}

TEST_CASE("check names a buffer that is read before it is allocated or after it is freed", "[check]") {
  Draft draft;
  SECTION("before") {
    draft.steps[2].reads.push_back(draft.a0_back);
    CHECK(reports(draft.judged(), Rule::not_resident, 2, draft.a0_back));
  }
  SECTION("after") {
    Schedule schedule = draft.schedule();
    schedule.steps[2].frees = {static_cast<std::uint32_t>(schedule.buffer_list.size()), 1};
    schedule.buffer_list.push_back(draft.x0);
    const std::vector<Violation> found = check(schedule, draft.graph, draft.platform);
    CHECK(reports(found, Rule::not_resident, 5, draft.x0));
    CHECK(found.at(0).what == "step 5 ('b', micro-batch 0) reads after its free buffer 2 ('x', micro-batch 0)");
  }
}

TEST_CASE("check names an input that is not read", "[check]") {
  Draft draft;
  draft.steps[3].reads = {draft.x1};
  const std::vector<Violation> found = draft.judged();
  CHECK(reports(found, Rule::missing_input, 3));
  CHECK(found.at(0).what == "step 3 ('b', micro-batch 1) does not read 'a', which it needs");
}

TEST_CASE("check names a part of an input that is missing", "[check]") {
  Draft draft;
  const BufferId rest = draft.builder.buffer(
      {.tensor = Draft::a, .micro_batch = 1, .memory = MemoryId{0}, .bytes = Bytes{3}, .range_offset = Bytes{5}});
  draft.steps[2].allocates.push_back(rest);
  Schedule schedule = draft.schedule();
  schedule.buffers[draft.a1.index].bytes = schedule.buffers[draft.a1.index].range_length = Bytes{5};
  const std::vector<Violation> found = check(schedule, draft.graph, draft.platform);
  CHECK(reports(found, Rule::missing_input, 3));
  CHECK(found.at(0).what == "step 3 ('b', micro-batch 1) reads only a part of 'a': bytes from 5 on are missing");
}

TEST_CASE("check names a part in the middle of an input that is missing", "[check]") {
  Draft draft;
  const auto part = [&](std::int64_t offset, std::int64_t length) {
    return draft.builder.buffer({.tensor = Draft::a,
                                 .micro_batch = 1,
                                 .memory = MemoryId{0},
                                 .bytes = Bytes{length},
                                 .range_offset = Bytes{offset}});
  };
  const BufferId middle = part(3, 2), end = part(5, 3);
  draft.steps[2].allocates.insert(draft.steps[2].allocates.end(), {middle, end});
  draft.steps[3].reads.push_back(end);
  const auto judged = [&draft] {
    Schedule schedule = draft.schedule();
    schedule.buffers[draft.a1.index].bytes = schedule.buffers[draft.a1.index].range_length = Bytes{3};
    return check(schedule, draft.graph, draft.platform);
  };
  const std::vector<Violation> found = judged();
  CHECK(reports(found, Rule::missing_input, 3));
  CHECK(found.at(0).what == "step 3 ('b', micro-batch 1) reads only a part of 'a': bytes from 3 on are missing");
  draft.steps[3].reads.push_back(middle);
  CHECK(!reports(judged(), Rule::missing_input));
}

TEST_CASE("check names a value of the wrong micro-batch", "[check]") {
  Draft draft;
  draft.steps[5].reads = {draft.a1, draft.x0};
  CHECK(reports(draft.judged(), Rule::wrong_value, 5, draft.a1));
}

TEST_CASE("check names a value that has been updated already", "[check]") {
  Draft draft;
  draft.steps.push_back(
      {.kind = StepKind::recompute, .stream = draft.compute, .op = Draft::f, .reads = {draft.weight, draft.x0}});
  CHECK(reports(draft.judged(), Rule::wrong_value, 7, draft.weight));
}

TEST_CASE("check names a reader that does not wait for the maker on another stream", "[check]") {
  Draft draft;
  draft.steps[1].waits = {};
  CHECK(reports(draft.judged(), Rule::not_ordered, 1, draft.a0));
}

TEST_CASE("check names a free that does not wait for a reader on another stream", "[check]") {
  Draft draft;
  const auto freed_after = [&](std::uint32_t step) {
    Draft fresh;
    Schedule schedule = fresh.schedule();
    schedule.steps[step].frees = {static_cast<std::uint32_t>(schedule.buffer_list.size()), 1};
    schedule.buffer_list.push_back(fresh.a0);
    return check(schedule, fresh.graph, fresh.platform);
  };
  CHECK(freed_after(1).empty());                                   // by the copy itself
  CHECK(reports(freed_after(2), Rule::not_ordered, 2, draft.a0));  // the copy may still run
  CHECK(freed_after(4).empty());                                   // the prefetch waits for the copy
}

TEST_CASE("check names a buffer that is filled with what its op does not make", "[check]") {
  Draft draft;
  const BufferId stray = draft.buffer(Draft::g, 0, 0);
  draft.steps[2].allocates.push_back(stray);
  CHECK(reports(draft.judged(), Rule::wrong_output, 2, stray));
}

TEST_CASE("check names an output in another micro-batch's buffer, and a change that is not written", "[check]") {
  SECTION("micro-batch") {
    Draft draft;
    const BufferId stray = draft.buffer(Draft::a, 0, 0);
    draft.steps[2].allocates = {draft.x1, stray};
    draft.steps[3].reads = {stray, draft.x1};
    CHECK(reports(draft.judged(), Rule::wrong_output, 2, stray));
  }
  SECTION("change") {
    Draft draft;
    draft.steps[6].writes = {};
    draft.steps[6].reads = {draft.gradient, draft.weight};
    CHECK(reports(draft.judged(), Rule::wrong_output, 6));
  }
}

TEST_CASE("check names a compute step on another memory, and a copy off its route", "[check]") {
  SECTION("compute") {
    Draft draft;
    draft.steps[5].reads = {draft.a0_host, draft.x0};
    CHECK(reports(draft.judged(), Rule::wrong_place, 5, draft.a0_host));
  }
  SECTION("copy") {
    Draft draft;
    draft.steps[4].work.route = draft.steps[1].work.route;
    CHECK(reports(draft.judged(), Rule::wrong_place, 4));
  }
}

TEST_CASE("check names a copy that moves too few bytes or another value", "[check]") {
  SECTION("bytes") {
    Draft draft;
    draft.steps[1].work.bytes = Bytes{7};
    CHECK(reports(draft.judged(), Rule::wrong_value, 1, draft.a0_host));
  }
  SECTION("value") {
    Draft draft;
    draft.steps[1].reads = {draft.x0};
    CHECK(reports(draft.judged(), Rule::wrong_value, 1, draft.a0_host));
  }
}

TEST_CASE("check names a copy that fills more than its source holds", "[check]") {
  Draft draft;
  draft.steps[1].work.bytes = Bytes{4};
  Schedule schedule = draft.schedule();
  Buffer& half = schedule.buffers[draft.a0_host.index];
  half.bytes = half.range_length = Bytes{4};
  CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::wrong_value, 4, draft.a0_back));
  half.range_offset = Bytes{4};
  CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::wrong_value, 4, draft.a0_back));
}

TEST_CASE("check names an op that never runs and a gradient without all contributions", "[check]") {
  Draft draft;
  draft.steps.erase(draft.steps.begin() + 5);
  const std::vector<Violation> found = draft.judged();
  CHECK(reports(found, Rule::incomplete, 5, draft.gradient));  // the update reads it too early
  CHECK(std::ranges::any_of(found, [](const Violation& v) { return v.what == "'b' never runs for micro-batch 0"; }));
}

TEST_CASE("an update may run on the host, where its values are", "[check]") {
  CHECK(HostDraft{}.judged().empty());
}

TEST_CASE("check names an update on the host that reads the device's memory or wants a workspace", "[check]") {
  HostDraft draft;
  SECTION("memory") {
    draft.steps[7].reads = {draft.gradient};
    CHECK(reports(draft.judged(), Rule::wrong_place, 7, draft.gradient));
  }
  SECTION("workspace") {
    draft.steps[7].workspace = Bytes{1};
    CHECK(reports(draft.judged(), Rule::wrong_cost, 7));
  }
}

TEST_CASE("check names what the next iteration would miss", "[check]") {
  HostDraft draft;
  SECTION("a parameter that was updated elsewhere only") {
    draft.steps.pop_back();
    CHECK(reports(draft.judged(), Rule::incomplete, {}, draft.weight));
  }
  SECTION("a parameter that is no longer there") {
    Schedule schedule = draft.schedule();
    schedule.steps[8].frees = {static_cast<std::uint32_t>(schedule.buffer_list.size()), 1};
    schedule.buffer_list.push_back(draft.weight_on_host);
    CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::incomplete, {}, draft.weight_on_host));
  }
}

TEST_CASE("check names a second update and a second contribution", "[check]") {
  SECTION("update") {
    Draft draft;
    draft.steps.push_back(draft.steps[6]);
    CHECK(reports(draft.judged(), Rule::repeated, 7));
  }
  SECTION("contribution") {
    Draft draft;
    draft.steps.insert(draft.steps.begin() + 6, draft.steps[5]);
    CHECK(reports(draft.judged(), Rule::repeated, 6, draft.gradient));
  }
}

TEST_CASE("check names a buffer that is freed twice or never was", "[check]") {
  Draft draft;
  Schedule schedule = draft.schedule();
  const auto frees = [&](std::uint32_t step, BufferId buffer) {
    schedule.steps[step].frees = {static_cast<std::uint32_t>(schedule.buffer_list.size()), 1};
    schedule.buffer_list.push_back(buffer);
  };
  SECTION("twice") {
    frees(5, draft.a1);
    frees(6, draft.a1);
    CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::freed_twice, 6, draft.a1));
  }
  SECTION("never allocated") {
    frees(0, draft.a1);
    CHECK(reports(check(schedule, draft.graph, draft.platform), Rule::freed_twice, 0, draft.a1));
  }
}

TEST_CASE("an output that no buffer is filled with must be there, in the step's own memory", "[check]") {
  Graph graph;
  graph.storages = 2;
  graph.tensors = {{.name = "x", .kind = TensorKind::input, .bytes = Bytes{8}, .storage = StorageId{0}},
                   {.name = "a", .kind = TensorKind::activation, .bytes = Bytes{8}, .storage = StorageId{1}},
                   {.name = "a'", .kind = TensorKind::activation, .bytes = Bytes{8}, .storage = StorageId{1}}};
  const TensorId x{0}, a{1}, view{2};
  graph.ops = {{.name = "f", .phase = Phase::forward, .duration = Seconds{1}, .inputs = {x}, .outputs = {a}},
               {.name = "view", .phase = Phase::forward, .duration = Seconds{1}, .inputs = {x}, .outputs = {view}}};
  enum class Stays { both, on_device, on_host };
  for (const Stays stays : {Stays::both, Stays::on_device, Stays::on_host}) {
    ScheduleBuilder builder;
    const auto buffer = [&](TensorId t, std::uint32_t memory) {
      return builder.buffer({.tensor = t, .memory = MemoryId{memory}, .bytes = Bytes{8}, .range_length = Bytes{8}});
    };
    const StreamId compute = builder.stream(DeviceId{0}, way::compute);
    const BufferId x0 = buffer(x, 0), a0 = buffer(a, 0), host = buffer(a, 2);
    builder.add({.stream = compute, .op = OpId{0}, .work = {.seconds = Seconds{1}}, .allocates = {x0, a0}});
    const StepId offload = builder.add({.kind = StepKind::offload,
                                        .stream = builder.stream(DeviceId{0}, way::device_to_host),
                                        .work = {.bytes = Bytes{8}, .route = builder.route(MemoryId{0}, MemoryId{2})},
                                        .reads = {a0},
                                        .allocates = {host},
                                        .waits = {StepId{0}}});
    if (stays == Stays::on_device) builder.free_after(offload, host);
    if (stays == Stays::on_host) builder.free_after(offload, a0);
    builder.add({.stream = compute, .op = OpId{1}, .work = {.seconds = Seconds{1}}, .reads = {x0}});
    const std::vector<Violation> found = check(builder.finish(), graph, gpus({.count = 2}));
    CHECK(reports(found, Rule::wrong_output, 2) == (stays == Stays::on_host));
    CHECK(found.empty() == (stays != Stays::on_host));
  }
}

TEST_CASE("check stops at its limit", "[check]") {
  Draft draft;
  for (NewStep& step : draft.steps) step.reads.clear();
  CHECK(check(draft.schedule(), draft.graph, draft.platform, 2).size() == 2);
}

}  // namespace
}  // namespace plimsoll
