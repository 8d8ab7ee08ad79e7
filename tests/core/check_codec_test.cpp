// check() of packed forms: their sizes, their costs, and what becomes an approximation because of them.

#include <catch2/catch.hpp>

#include "tests/core/draft.h"

namespace plimsoll {
namespace {

/// The draft with a(0), two numbers in fp32, packed by a codec instead of offloaded: 1 packs, 4 unpacks.
struct PackedDraft : Draft {
  Codec codec;
  BufferId packed, restored;

  explicit PackedDraft(const Codec& by = {.kind = CodecKind::quantize, .bits = 8}) : codec(by) {
    graph.tensors[a.index].shape = {2};
    const Bytes bytes = packed_bytes(codec, graph, graph[a]);
    const bool lossy = is_lossy(codec);
    packed = builder.buffer({.tensor = a,
                             .memory = MemoryId{0},
                             .bytes = bytes,
                             .range_length = Bytes{8},
                             .codec = CodecId{0},
                             .lossy = lossy});
    restored = builder.buffer({.tensor = a, .memory = MemoryId{0}, .bytes = Bytes{8}, .lossy = lossy});
    builder.mark_lossy(gradient);
    steps[1] = {.kind = StepKind::pack, .stream = compute, .reads = {a0}, .allocates = {packed}};
    steps[4] = {.kind = StepKind::unpack, .stream = compute, .reads = {packed}, .allocates = {restored}};
    steps[5].reads = {restored, x0};
    steps[5].waits = {};
  }

  Schedule schedule() const {
    Schedule made = Draft::schedule();
    made.codecs = {codec};
    made.approximate = {g};
    return made;
  }
  template <class Change>
  std::vector<Violation> judged(Change change) const {
    Schedule made = schedule();
    change(made);
    return check(made, graph, platform);
  }
};

TEST_CASE("a value may wait in a packed form, if all that it makes inexact says so", "[check][codec]") {
  const PackedDraft draft;
  const std::vector<Violation> found = draft.judged([](Schedule&) {});
  INFO((found.empty() ? "" : found[0].what));
  CHECK(found.empty());
}

TEST_CASE("packing takes the device's own rate where it has one, of the nearest codec of the kind", "[check][codec]") {
  PackedDraft draft;
  Device& device = draft.platform.devices[0];
  device.memory_bandwidth = BytesPerSecond{1};
  device.launch_overhead = Seconds{0.25};
  device.codec_rates = {{CodecKind::quantize, 2, BytesPerSecond{1}, BytesPerSecond{16}},
                        {CodecKind::quantize, 6, BytesPerSecond{4}, BytesPerSecond{2}},
                        {CodecKind::pool, 8, BytesPerSecond{100}, BytesPerSecond{100}}};
  const Tensor& value = draft.graph[Draft::a];  // 8 bytes, in 8 bits: nearer to 6 than to 2
  CHECK(pack_time(draft.codec, draft.graph, value, device).value ==
        Approx(8.0 / 4 + 0.25 * pack_cost(draft.codec, draft.graph, value).kernels));
  CHECK(unpack_time(draft.codec, draft.graph, value, device).value == Approx(8.0 / 2 + 0.25));
  draft.steps[1].work.seconds = pack_time(draft.codec, draft.graph, value, device);
  draft.steps[4].work.seconds = unpack_time(draft.codec, draft.graph, value, device);
  CHECK(draft.judged([](Schedule&) {}).empty());
  device.codec_rates.clear();  // then by what is moved, at the memory's bandwidth
  const CodecCost cost = unpack_cost(draft.codec, draft.graph, value);
  CHECK(unpack_time(draft.codec, draft.graph, value, device).value ==
        Approx(static_cast<double>(cost.moved.count) + 0.25));
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::wrong_cost, 1));
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::wrong_cost, 4));
  CHECK(unpack_time({.kind = CodecKind::mask, .bits = 1}, draft.graph, value, device) == Seconds{0});
}

TEST_CASE("check counts the size of a packed form anew", "[check][codec]") {
  const PackedDraft draft;
  CHECK(draft.schedule().buffers[draft.packed.index].bytes == Bytes{2});
  const auto with_bytes = [&](std::int64_t bytes) {
    return draft.judged([&](Schedule& s) { s.buffers[draft.packed.index].bytes = Bytes{bytes}; });
  };
  CHECK(with_bytes(2).empty());
  CHECK(reports(with_bytes(1), Rule::wrong_cost, {}, draft.packed));
  CHECK(reports(with_bytes(3), Rule::wrong_cost, {}, draft.packed));
}

TEST_CASE("check names a packed form that no codec explains", "[check][codec]") {
  const PackedDraft draft;
  const BufferId packed = draft.packed;
  CHECK(reports(draft.judged([](Schedule& s) { s.codecs.clear(); }), Rule::malformed, {}, packed));
  CHECK(reports(draft.judged([](Schedule& s) { s.codecs[0].bits = 0; }), Rule::malformed));
  const auto in_groups = [](Schedule& s) {
    s.codecs[0].group = 2;
    s.codecs[0].group_bytes = 4;
  };
  CHECK(reports(draft.judged(in_groups), Rule::wrong_cost, {}, packed));
  PackedDraft shapeless;
  shapeless.graph.tensors[Draft::a.index].shape.clear();
  CHECK(reports(shapeless.judged([](Schedule&) {}), Rule::malformed, {}, packed));
  PackedDraft integers;
  integers.graph.tensors[Draft::a.index].dtype = "int32";
  CHECK(reports(integers.judged([](Schedule&) {}), Rule::malformed, {}, packed));
}

TEST_CASE("check names what a lossy codec makes without saying so", "[check][codec]") {
  const PackedDraft draft;
  const auto exact = [&](BufferId b) { return draft.judged([&](Schedule& s) { s.buffers[b.index].lossy = false; }); };
  CHECK(reports(exact(draft.packed), Rule::lossy, {}, draft.packed));
  CHECK(reports(exact(draft.restored), Rule::lossy, 4, draft.restored));
  CHECK(reports(exact(draft.gradient), Rule::lossy, 5, draft.gradient));
  CHECK(reports(draft.judged([](Schedule& s) { s.approximate.clear(); }), Rule::lossy));
}

TEST_CASE("check names an approximation that is none", "[check][codec]") {
  const PackedDraft draft;
  CHECK(reports(draft.judged([&](Schedule& s) { s.buffers[draft.a1.index].lossy = true; }), Rule::lossy, {}, draft.a1));
  Draft exact;
  Schedule schedule = exact.schedule();
  schedule.approximate = {Draft::g};
  CHECK(reports(check(schedule, exact.graph, exact.platform), Rule::lossy));
  schedule.approximate = {Draft::w};
  CHECK(reports(check(schedule, exact.graph, exact.platform), Rule::malformed));
}

TEST_CASE("check names who reads a packed form without unpacking it, and copies that change it", "[check][codec]") {
  SECTION("computed on") {
    PackedDraft draft;
    draft.steps[5].reads = {draft.packed, draft.x0};
    CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy, 5, draft.packed));
  }
  SECTION("filled by an op") {
    const PackedDraft draft;
    const auto found = draft.judged([&](Schedule& s) { s.buffers[draft.a1.index].codec = CodecId{0}; });
    CHECK(reports(found, Rule::wrong_cost, {}, draft.a1));
  }
  SECTION("copied into a plain buffer") {
    PackedDraft draft;
    draft.steps[4] = {.kind = StepKind::prefetch,
                      .stream = draft.in,
                      .work = {.bytes = Bytes{8}, .route = draft.builder.route(MemoryId{2}, MemoryId{0})},
                      .reads = {draft.packed},
                      .allocates = {draft.restored},
                      .waits = {StepId{1}}};
    CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy, 4, draft.restored));
  }
  SECTION("packed twice") {
    PackedDraft draft;
    draft.steps[4].reads = {draft.a0};
    CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy, 4, draft.restored));
  }
  SECTION("called by another name") {
    PackedDraft draft;
    draft.steps[1].kind = StepKind::unpack;
    CHECK(reports(draft.judged([](Schedule&) {}), Rule::malformed, 1));
  }
  SECTION("there from the start") {
    const PackedDraft draft;
    CHECK_FALSE(draft.judged([&](Schedule& s) { s.buffers[draft.weight.index].codec = CodecId{0}; }).empty());
  }
}

TEST_CASE("packing takes what its kernels move", "[check][codec]") {
  PackedDraft draft;
  draft.platform.devices[0].memory_bandwidth = BytesPerSecond{2};
  draft.platform.devices[0].launch_overhead = Seconds{1};
  draft.platform.devices[0].takes_trace_times = true;
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::wrong_cost, 1));
  draft.steps[1].work.seconds = Seconds{1 + 10.0 / 2};  // one kernel: 8 B read, 2 B written
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::wrong_cost, 4));
  draft.steps[4].work.seconds = Seconds{1 + 10.0 / 2};
  CHECK(draft.judged([](Schedule&) {}).empty());
  draft.steps[4].workspace = Bytes{1};
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::wrong_cost, 4));
  draft.steps[4].measured = true;
  CHECK(draft.judged([](Schedule&) {}).empty());
}

TEST_CASE("check names who reads steps of a derivative or sampled rows and cannot, and what they make is inexact",
          "[check][codec]") {
  PackedDraft draft({.kind = CodecKind::step, .bits = 2});
  draft.steps[4] = {.kind = StepKind::unpack, .stream = draft.compute};  // frees nothing, does nothing
  draft.steps[5].reads = {draft.packed, draft.x0};
  draft.graph.ops[1].kind = "gelu_backward";
  const auto read = [&](Schedule& s) { s.buffers[draft.restored.index].lossy = false; };
  CHECK(draft.judged(read).empty());
  const auto exact = [&](Schedule& s) {
    read(s);
    s.approximate.clear();
    s.buffers[draft.gradient.index].lossy = false;
  };
  CHECK(reports(draft.judged(exact), Rule::lossy, 5, draft.gradient));
  draft.graph.ops[1].kind = "convolution_backward";
  CHECK(reports(draft.judged(read), Rule::lossy, 5, draft.packed));
  PackedDraft rows({.kind = CodecKind::rows, .keep = 1});
  rows.graph.ops[1].kind = "convolution_backward";
  rows.steps[4] = draft.steps[4];
  rows.steps[5].reads = {rows.packed, rows.x0};
  CHECK(reports(rows.judged(read), Rule::lossy, 5, rows.packed));
  CHECK(reports(rows.judged([](Schedule& s) { s.codecs[0].keep = 1.5; }), Rule::malformed));
}

TEST_CASE("a ReLU's gradient takes a mask as it is, exactly, and no block means", "[check][codec]") {
  PackedDraft draft({.kind = CodecKind::mask, .bits = 1});
  draft.graph.ops[1].kind = "threshold_backward";
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy, 4, draft.restored));  // nothing can restore from signs
  draft.steps[4] = {.kind = StepKind::unpack, .stream = draft.compute};            // frees nothing, does nothing
  draft.steps[5].reads = {draft.packed, draft.x0};
  const auto exact = [&](Schedule& s) {
    s.approximate.clear();
    s.buffers[draft.gradient.index].lossy = s.buffers[draft.restored.index].lossy = false;
  };
  CHECK(draft.judged(exact).empty());
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy));  // the gradient is exact
  draft.graph.ops[1].kind = "gelu_backward";
  CHECK(reports(draft.judged(exact), Rule::lossy, 5, draft.packed));
  PackedDraft means({.kind = CodecKind::pool, .window = 2});
  means.graph.tensors[means.a.index].shape = {1, 1, 1, 2};
  means.graph.ops[1].kind = "gelu_backward";
  CHECK(means.judged([](Schedule&) {}).empty());
  means.graph.ops[1].kind = "threshold_backward";
  CHECK(reports(means.judged([](Schedule&) {}), Rule::lossy, 5, means.restored));
}

TEST_CASE("a stage may read signs for its ReLUs, and the value for what else needs it", "[check][codec]") {
  PackedDraft draft({.kind = CodecKind::mask, .bits = 1});
  draft.steps[4] = {.kind = StepKind::unpack, .stream = draft.compute};
  draft.steps[5].reads = {draft.packed, draft.x0};
  const auto exact = [&](Schedule& s) {
    s.approximate.clear();
    s.buffers[draft.gradient.index].lossy = s.buffers[draft.restored.index].lossy = false;
  };
  std::vector<InputUse>& uses = draft.graph.ops[1].uses;
  draft.graph.ops[1].kind = "stage";
  CHECK(reports(draft.judged(exact), Rule::lossy, 5, draft.packed));  // what for, it does not say
  uses = {{draft.a, *layer_use("relu.output")}};
  CHECK(draft.judged(exact).empty());
  uses = {{draft.a, *layer_use("pool.shape")}};
  CHECK(draft.judged(exact).empty());
  uses = {{draft.a, *layer_use("linear.input")}};
  CHECK(reports(draft.judged(exact), Rule::lossy, 5, draft.packed));
  uses.push_back({draft.a, *layer_use("relu.output")});
  CHECK(reports(draft.judged(exact), Rule::missing_input, 5));
}

// The backward of a product reads its input for the gradient of the weight alone; of what is made of its result nothing
// is known.
TEST_CASE("a stage's gradients are exact where products read an approximation as a factor alone", "[check][codec]") {
  PackedDraft draft;
  draft.graph.tensors.push_back({.name = "gradient of x",
                                 .kind = TensorKind::gradient,
                                 .bytes = Bytes{8},
                                 .storage = id_at<StorageId>(draft.graph.storages++)});
  const auto dx = id_at<TensorId>(draft.graph.tensors.size() - 1);
  Op& stage = draft.graph.ops[1];
  stage.kind = "stage";
  stage.outputs.push_back(dx);
  draft.steps[3].allocates.push_back(draft.buffer(dx, 1, 0));
  const BufferId of_input = draft.buffer(dx, 0, 0);
  draft.steps[5].allocates = {of_input};
  const auto judged_as = [&](const char* use) {
    stage.uses = {{draft.a, *layer_use(use)}};
    return draft.judged([](Schedule&) {});
  };
  for (const char* use : {"linear.input", "conv3x3.input"}) CHECK(judged_as(use).empty());
  for (const char* use : {"linear.output", "conv.output", "matmul.input", "gelu.input"}) {
    INFO(use);
    CHECK(reports(judged_as(use), Rule::lossy, 5, of_input));
  }
}

TEST_CASE("a stage never takes the signs of a ReLU's output from block means", "[check][codec]") {
  PackedDraft draft({.kind = CodecKind::pool, .window = 2});
  draft.graph.tensors[draft.a.index].shape = {1, 1, 1, 2};
  draft.graph.ops[1].kind = "stage";
  std::vector<InputUse>& uses = draft.graph.ops[1].uses;
  uses = {{draft.a, *layer_use("conv.input")}};
  CHECK(draft.judged([](Schedule&) {}).empty());
  uses.push_back({draft.a, *layer_use("relu.output")});
  CHECK(reports(draft.judged([](Schedule&) {}), Rule::lossy, 5, draft.restored));
}

}  // namespace
}  // namespace plimsoll
