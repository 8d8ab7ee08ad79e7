// Sizes and costs of packed forms by hand and as published.

#include "sim/core/codec.h"

#include <catch2/catch.hpp>

namespace plimsoll {
namespace {

Graph graph_with(std::vector<std::int64_t> shape, std::int64_t each = 4, const std::string& dtype = "float32") {
  Graph graph;
  std::int64_t bytes = each;
  for (const std::int64_t d : shape) bytes *= d;
  graph.tensors.push_back({.name = "x", .bytes = Bytes{bytes}, .shape = std::move(shape), .dtype = dtype});
  graph.storages = 1;
  return graph;
}

std::int64_t packed(const Codec& codec, const std::vector<std::int64_t>& shape) {
  const Graph graph = graph_with(shape);
  REQUIRE_FALSE(cannot_pack(codec, graph, graph.tensors[0]));
  return packed_bytes(codec, graph, graph.tensors[0]).count;
}

TEST_CASE("packed sizes are those of their rules", "[codec]") {
  const std::vector<std::int64_t> map{2, 3, 7, 5};  // 210 values
  CHECK(packed({.kind = CodecKind::pool, .window = 2}, map) == 2 * 3 * 4 * 3 * 4);
  CHECK(packed({.kind = CodecKind::pool, .window = 5}, map) == 2 * 3 * 2 * 1 * 4);
  CHECK(packed({.kind = CodecKind::pool, .window = 16}, map) == 2 * 3 * 4);
  CHECK(packed({.kind = CodecKind::pool, .window = 2, .channels_last = true}, map) == 2 * 5 * 2 * 4 * 4);
  CHECK(packed({.kind = CodecKind::mask, .bits = 1}, map) == 27);
  CHECK(packed({.kind = CodecKind::mask, .bits = 8}, map) == 210);
  CHECK(packed({.kind = CodecKind::cast, .bits = 16}, map) == 420);
  // two bits each in groups of 16 with 8 B: as they are, in whole groups, in whole groups of each sample
  const Codec two{.kind = CodecKind::quantize, .bits = 2, .group = 16, .group_bytes = 8};
  const auto padded = [&](Padding padding) {
    Codec codec = two;
    codec.padding = padding;
    return packed(codec, map);
  };
  CHECK(padded(Padding::none) == 53 + 14 * 8);
  CHECK(padded(Padding::tensor) == 14 * (4 + 8));
  CHECK(padded(Padding::sample) == 2 * 7 * (4 + 8));
  CHECK(packed({.kind = CodecKind::quantize, .bits = 4}, map) == 105);  // a fixed range has no groups
  // as a matrix of 42 x 5: 11 x 2 blocks of 4 x 4, of which half stay: 11
  CHECK(packed({.kind = CodecKind::block_sparse, .block = 4, .keep = 0.5}, map) == 11 * (16 * 4 + 4) + 4 * 12);
  CHECK(packed({.kind = CodecKind::zero_run, .keep = 0.3}, map) == 27 + 63 * 4);
}

TEST_CASE("packed sizes of parts, of zeros left out, of steps and of rows are those of their rules", "[codec]") {
  const std::vector<std::int64_t> map{2, 3, 7, 5};  // 210 values; 42 rows of 5
  CHECK(packed({.kind = CodecKind::quantize, .bits = 8, .parts = 3, .group_bytes = 8}, map) == 210 + 3 * 8);
  const Codec zeros{
      .kind = CodecKind::quantize, .bits = 6, .parts = 3, .zero_mask = true, .group_bytes = 4, .keep = 0.3};
  CHECK(packed(zeros, map) == 48 + 27 + 3 * 4);  // 63 numbers are 378 bits
  CHECK(packed({.kind = CodecKind::compressed_rows, .keep = 0.3}, map) == 63 * (4 + 1) + 4 * 2);
  CHECK(packed({.kind = CodecKind::compressed_rows, .keep = 0.5}, {3, 256}) == 384 * 5 + 4 * 4);
  CHECK(packed({.kind = CodecKind::compressed_rows, .keep = 0.5}, {257}) == 129 * 5 + 4 * 3);
  CHECK(packed({.kind = CodecKind::step, .bits = 3}, map) == 79);  // of 630 bits
  CHECK(packed({.kind = CodecKind::step, .bits = 1}, map) == 27);
  CHECK(packed({.kind = CodecKind::rows, .keep = 0.3}, map) == 13 * (5 * 4 + 8));  // of 12.6 rows
  CHECK(packed({.kind = CodecKind::projection, .keep = 0.3}, map) == 13 * 5 * 4 + 8);
  const Graph places = graph_with(map, 8, "int64");
  const auto of_places = [&](std::uint32_t bits) {
    return packed_bytes({.kind = CodecKind::index, .bits = bits}, places, places.tensors[0]);
  };
  CHECK(of_places(8) == Bytes{210});
  CHECK(of_places(4) == Bytes{105});
}

TEST_CASE("bits a value are those that systems publish", "[codec]") {
  const std::vector<std::int64_t> many{64, 256, 56, 56};
  const double values = 64.0 * 256 * 56 * 56;
  const auto bits = [&](const Codec& codec) { return 8 * static_cast<double>(packed(codec, many)) / values; };
  // ActNN: 2 bits, scale and minimum in bf16 every 256; ALAM: 2 bits for means of 4, 8 B every 128 of them
  CHECK(bits({.kind = CodecKind::quantize, .bits = 2, .group = 256, .group_bytes = 4, .padding = Padding::sample}) ==
        Approx(2.125));
  CHECK(bits({.kind = CodecKind::quantize, .bits = 2, .group = 128, .group_bytes = 8, .averaged = 4}) == Approx(0.625));
}

TEST_CASE("what a codec cannot pack it says", "[codec]") {
  const auto why = [](const Codec& codec, const Graph& graph) {
    return cannot_pack(codec, graph, graph.tensors[0]).value_or("");
  };
  const Codec pool{.kind = CodecKind::pool, .window = 8};
  CHECK(why(pool, graph_with({2, 3, 8, 8})).empty());
  CHECK(why(pool, graph_with({2, 3, 8})) == "pools pictures, and 'x' has 3 dimensions instead of 4");
  CHECK(why(pool, graph_with({})) == "needs shapes, and 'x' has none in the trace");
  CHECK(why({.kind = CodecKind::mask, .bits = 1}, graph_with({4}, 8, "int64")) ==
        "packs floating point numbers, and 'x' is of dtype 'int64'");
  Graph view = graph_with({4});
  view.tensors[0].bytes = Bytes{32};
  CHECK(why({.kind = CodecKind::cast, .bits = 16}, view) ==
        "packs whole storages, and 'x' takes 32 B for 4 numbers of 4 B");
}

TEST_CASE("shares of a packed form add up to all of it", "[codec]") {
  const Bytes tensor{840}, whole{53};
  std::int64_t sum = 0;
  for (std::int64_t offset = 0; offset < 840; offset += 120) {
    sum += packed_share(whole, tensor, Bytes{offset}, Bytes{120}).count;
  }
  CHECK(sum == 53);
  CHECK(packed_share(whole, tensor, Bytes{0}, Bytes{120}) == Bytes{7});
  CHECK(packed_share(whole, tensor, Bytes{0}, tensor) == whole);
}

TEST_CASE("packing moves what its kernels read and write", "[codec]") {
  const Graph graph = graph_with({4, 1024});
  const Tensor& tensor = graph.tensors[0];
  const auto n = static_cast<std::int64_t>(4096);
  const auto packing = [&](const Codec& codec) { return pack_cost(codec, graph, tensor); };
  const Codec quantize{.kind = CodecKind::quantize, .bits = 2, .group = 256, .group_bytes = 4};
  CHECK(packing(quantize).kernels == 3);
  CHECK(packing(quantize).moved == Bytes{2 * 4 * n + (n / 4 + 16 * 4) + 2 * 16 * 4});
  CHECK(packing(quantize).workspace == Bytes{0});
  CHECK(unpack_cost(quantize, graph, tensor).moved == Bytes{4 * n + n / 4 + 16 * 4});
  Codec padded = quantize;  // to 2 x 768 a sample, by a copy
  padded.group = 768;
  padded.padding = Padding::sample;
  CHECK(packing(padded).kernels == 4);
  CHECK(packing(padded).workspace == Bytes{4 * 2 * 768 * 4});
  Codec means{.kind = CodecKind::quantize, .bits = 2, .group = 128, .group_bytes = 8, .averaged = 4};
  CHECK(packing(means).kernels == 4);
  CHECK(packing(means).workspace == Bytes{n});
  CHECK(packing(means).moved == Bytes{4 * n + 3 * n + (n / 16 + 8 * 8) + 2 * 8 * 8});
  const Graph narrow = graph_with({4, 1024}, 2, "bfloat16");  // widened to fp32 first, means are in fp32
  const CodecCost widened = pack_cost(means, narrow, narrow.tensors[0]);
  CHECK(widened.kernels == 5);
  CHECK(widened.workspace == Bytes{4 * n + n});
  CHECK(widened.moved == Bytes{2 * n + 4 * n + 4 * n + 3 * n + (n / 16 + 8 * 8) + 2 * 8 * 8});
  const Codec mask{.kind = CodecKind::mask, .bits = 1};
  CHECK(packing(mask).kernels == 0);
  CHECK(packing(mask).moved == Bytes{n / 8});
}

TEST_CASE("a projection takes its bytes or its operations, whichever is longer", "[codec]") {
  Graph graph = graph_with({4, 256, 8});  // 1024 rows of 8, to 512 sums of rows
  graph.source.dtype = "fp32";
  const Tensor& tensor = graph.tensors[0];
  const Codec half{.kind = CodecKind::projection, .keep = 0.5};
  const CodecCost cost = pack_cost(half, graph, tensor);
  CHECK(cost.kernels == 1);
  CHECK(cost.moved == Bytes{1024 * 8 * 4 + 512 * 8 * 4 + 8});
  CHECK(cost.flops.count == 2.0 * 512 * 1024 * 8);
  CHECK(unpack_cost(half, graph, tensor).kernels == 0);
  Device device;
  device.memory_bandwidth = BytesPerSecond{49160};
  device.launch_overhead = Seconds{0.5};
  CHECK(pack_time(half, graph, tensor, device).value == Approx(1.5));  // of no peak nothing is known
  device.peak["fp32"] = FlopsPerSecond{8388608.0 / 3};
  CHECK(pack_time(half, graph, tensor, device).value == Approx(3.5));
  CHECK(pack_time(half, cost, Bytes{49160 / 2}, Bytes{1024 * 8 * 2}, device).value == Approx(2));  // a half of it
  Codec other = half;
  other.sums = Projection::gaussian;
  CHECK(pack_cost(other, graph, tensor).flops.count == cost.flops.count);
  CHECK(packed_bytes(other, graph, tensor) == packed_bytes(half, graph, tensor));
  other.sums = Projection::dct;  // all rows are transformed, each column by 5 n log2 n; those that are drawn are moved
  const CodecCost transform = pack_cost(other, graph, tensor);
  CHECK(transform.kernels == 2);
  CHECK(transform.workspace == tensor.bytes);
  CHECK(transform.moved == Bytes{2 * 1024 * 8 * 4 + 2 * (512 * 8 * 4 + 8)});
  CHECK(transform.flops.count == 5.0 * 1024 * 8 * 10);
  CHECK(packed_bytes(other, graph, tensor) == packed_bytes(half, graph, tensor));
}

TEST_CASE("codecs of one kind are told apart by their ranges first, then by their bits", "[codec]") {
  const auto rate = [](QuantizedBy by, std::uint32_t bits, double pack) {
    return CodecRate{CodecKind::quantize, bits + 256 * static_cast<std::uint32_t>(by), BytesPerSecond{pack},
                     BytesPerSecond{1}};
  };
  Device device;
  device.codec_rates = {rate(QuantizedBy::groups, 2, 1), rate(QuantizedBy::groups, 8, 2),
                        rate(QuantizedBy::whole_groups, 2, 3), rate(QuantizedBy::fixed_range, 8, 4)};
  const auto found = [&](Codec codec) { return rate_of(codec, device)->pack.value; };
  const Codec groups{.kind = CodecKind::quantize, .bits = 7, .group = 256, .group_bytes = 8};
  CHECK(found(groups) == 2);
  Codec whole = groups;
  whole.padding = Padding::tensor;
  CHECK(found(whole) == 3);
  Codec narrow = groups;  // scales in bf16
  narrow.group_bytes = 4;
  CHECK(found(narrow) == 3);
  Codec means = groups;
  means.averaged = 4;
  CHECK(quantized_by(means) == QuantizedBy::means);
  CHECK(found(means) == 3);
  CHECK(quantized_by({.kind = CodecKind::quantize, .parts = 2, .group_bytes = 8}) == QuantizedBy::parts);
  CHECK(quantized_by({.kind = CodecKind::quantize, .parts = 2, .group_bytes = 4}) == QuantizedBy::channels);
  CHECK(quantized_by({.kind = CodecKind::quantize, .parts = 2, .zero_mask = true, .group_bytes = 4}) ==
        QuantizedBy::above_zero);
  CHECK(found({.kind = CodecKind::quantize, .bits = 2}) == 4);
}

TEST_CASE("parts are put in order by a copy, zeros are counted first, steps are written where the value is made",
          "[codec]") {
  const Graph graph = graph_with({4, 1024});
  const Tensor& tensor = graph.tensors[0];
  const std::int64_t n = 4096;
  Codec parts{.kind = CodecKind::quantize, .bits = 8, .parts = 2, .group_bytes = 8};
  const auto packs = [&](const Codec& codec, std::uint32_t kernels, std::int64_t moved, std::int64_t workspace) {
    const CodecCost cost = pack_cost(codec, graph, tensor);
    CHECK(cost.kernels == kernels);
    CHECK(cost.moved == Bytes{moved});
    CHECK(cost.workspace == Bytes{workspace});
  };
  packs(parts, 3, 2 * 4 * n + (n + 16) + 2 * 16, 0);
  parts.regrouped = true;  // read and written; largest, smallest; read and packed
  packs(parts, 5, 5 * 4 * n + (n + 16) + 2 * 16, 4 * n);
  const CodecCost back = unpack_cost(parts, graph, tensor);
  CHECK(back.kernels == 2);
  CHECK(back.moved == Bytes{(n + 16) + 3 * 4 * n});
  CHECK(back.workspace == Bytes{4 * n});
  packs({.kind = CodecKind::quantize, .bits = 4}, 1, 4 * n + n / 2, 0);
  const Codec zeros{
      .kind = CodecKind::quantize, .bits = 8, .parts = 2, .zero_mask = true, .group_bytes = 4, .keep = 0.5};
  packs(zeros, 4, 3 * 4 * n + (n / 2 + n / 8 + 8) + 2 * 8, 4 * 16);
  packs({.kind = CodecKind::compressed_rows, .keep = 0.5}, 2, 2 * 4 * n + (n / 2 * 5 + 4 * 17), 4 * 16);
  packs({.kind = CodecKind::step, .bits = 2}, 0, n / 4, 0);
  packs({.kind = CodecKind::rows, .keep = 0.5}, 3, 4 * n + 2 * 4 * 4 + 2 * 2 * (4096 + 8), 4 * 4);
  CHECK(unpack_cost({.kind = CodecKind::step, .bits = 2}, graph, tensor).moved == Bytes{0});
  CHECK(unpack_cost({.kind = CodecKind::compressed_rows, .keep = 0.5}, graph, tensor).kernels == 2);
}

TEST_CASE("an op reads a packed form as it is only where that says enough", "[codec]") {
  const auto op = [](const char* kind) { return Op{.kind = kind, .phase = Phase::backward}; };
  const Codec signs{.kind = CodecKind::quantize, .bits = 4, .keeps_signs = true},
      plain{.kind = CodecKind::quantize, .bits = 4}, step{.kind = CodecKind::step, .bits = 2},
      rows{.kind = CodecKind::rows, .keep = 0.5};
  CHECK(reads_exactly(op("threshold_backward"), signs));
  CHECK_FALSE(reads_packed(op("threshold_backward"), plain));
  CHECK_FALSE(reads_packed(op("convolution_backward"), signs));
  CHECK(reads_packed(op("gelu_backward"), step));
  CHECK_FALSE(reads_exactly(op("gelu_backward"), step));
  CHECK_FALSE(reads_packed(op("threshold_backward"), step));
  CHECK(reads_packed(op("mm"), rows));
  CHECK_FALSE(reads_exactly(op("mm"), rows));
  CHECK_FALSE(reads_packed(Op{.kind = "mm"}, rows));
  CHECK_FALSE(reads_packed(op("bmm"), rows));
}

TEST_CASE("an approximate input reaches only what is made from it", "[codec]") {
  Graph graph;
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back({.name = name, .kind = kind, .bytes = Bytes{4}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId gy = tensor("gy", TensorKind::gradient), x = tensor("x", TensorKind::activation),
                 w = tensor("w", TensorKind::parameter), gx = tensor("gx", TensorKind::gradient),
                 gw = tensor("gw", TensorKind::parameter_gradient), gb = tensor("gb", TensorKind::parameter_gradient);
  Op op{.kind = "convolution_backward", .phase = Phase::backward, .inputs = {gy, x, w}, .outputs = {gx, gw, gb}};
  const auto reached = [&](TensorId from) {
    std::string names;
    for (const TensorId t : op.outputs) names += depends_on(graph, op, from, t) ? graph[t].name + " " : "";
    return names;
  };
  CHECK(reached(x) == "gw ");
  CHECK(reached(gy) == "gx gw gb ");
  op.kind = "native_batch_norm_backward";
  CHECK(reached(x) == "gx gw ");
  op.kind = "gelu_backward";
  op.outputs = {gx};
  CHECK(reached(x) == "gx ");
  op.kind = "convolution_backward";
  op.outputs = {gx, gw};
  CHECK(reached(x) == "gw ");
}

TEST_CASE("a stage's backward reads an input for all its layers", "[codec]") {
  Graph graph;
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back({.name = name, .kind = kind, .bytes = Bytes{4}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::activation), y = tensor("y", TensorKind::activation),
                 gx = tensor("gx", TensorKind::gradient), gw = tensor("gw", TensorKind::parameter_gradient);
  const Codec mask{.kind = CodecKind::mask, .bits = 1}, places{.kind = CodecKind::index}, numbers{};
  Op op{.kind = "stage", .phase = Phase::backward, .inputs = {x, y}, .outputs = {gx, gw}};
  const auto use_x = [&](std::initializer_list<const char*> uses) {
    op.uses = {{y, *layer_use("relu.output")}};
    for (const char* use : uses) op.uses.push_back({x, *layer_use(use)});
  };
  const auto reached = [&](std::optional<Codec> beside = {}) {
    std::string names;
    for (const TensorId t : op.outputs) names += depends_on(graph, op, x, t, beside) ? graph[t].name + " " : "";
    return names;
  };
  CHECK(!reads_packed(op, x, mask));  // nothing is known of it
  CHECK(reached() == "gx gw ");
  use_x({"relu.output"});
  CHECK(reads_packed(op, x, mask));
  CHECK(!reads_beside(op, x, mask));
  CHECK(!reads_packed(op, x, numbers));
  use_x({"conv3x3.input", "linear.input"});
  CHECK(!reads_packed(op, x, mask));
  CHECK(!reads_beside(op, x, mask));
  CHECK(reached() == "gw ");
  use_x({"relu.output", "conv3x3.input"});
  CHECK(!reads_packed(op, x, mask));
  CHECK(reads_beside(op, x, mask));
  CHECK(reached() == "gx gw ");
  CHECK(reached(mask) == "gw ");  // signs are exact
  use_x({"conv.output"});
  CHECK(reached() == "gx gw ");
  use_x({"relu.input"});
  CHECK(!reads_packed(op, x, mask));
  use_x({"pool.input"});
  CHECK(!reads_packed(op, x, mask));
  use_x({"pool.shape", "relu.output"});
  CHECK(reads_packed(op, x, mask));
  CHECK(!reads_packed(op, x, places));
  use_x({"pool.shape", "conv.input"});
  CHECK(reads_beside(op, x, mask));
  CHECK(reached() == "gw ");
  use_x({"pool.output"});
  CHECK(reads_packed(op, x, places));
  CHECK(!reads_packed(op, x, mask));
}

TEST_CASE("uses are read as they are written", "[codec]") {
  for (const char* text :
       {"conv.input", "conv3x3.input", "conv16x16.output", "relu.output", "pool.shape", "other.input"}) {
    REQUIRE(layer_use(text).has_value());
    CHECK(text_of(*layer_use(text)) == text);
  }
  CHECK(layer_use("conv3x3.input") == LayerUse{.by = SavedBy::conv, .kernel = 3});
  for (const char* text : {"", "conv", ".input", "conv3x4.input", "conv100x100.input", "relu.result", "stage.input",
                           "checkpoint.input", "conv.input.input"}) {
    CHECK(!layer_use(text).has_value());
  }
}

}  // namespace
}  // namespace plimsoll
