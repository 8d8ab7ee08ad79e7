// Products on packed forms: what they take by hand, and that check() counts it anew.

#include "sim/codec/packed_products.h"

#include <catch2/catch.hpp>

#include "sim/ops/layers.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

struct Product {
  Problem problem;
  OpId op;
  TensorId value;
};

/// One op that makes the gradient of a weight, on a device of 100 flop/s, 10 B/s and launches of a second.
Product product_of(const std::string& kind, const std::vector<std::int64_t>& value,
                   const std::vector<std::int64_t>& result, const std::vector<std::int64_t>& weight, double flops,
                   bool makes_both) {
  Graph graph;
  const auto add = [&](const std::string& name, TensorKind of, const std::vector<std::int64_t>& shape) {
    std::int64_t bytes = 4;
    for (const std::int64_t d : shape) bytes *= d;
    graph.tensors.push_back({.name = name,
                             .kind = of,
                             .bytes = Bytes{bytes},
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = shape,
                             .dtype = "float32"});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = add("x", TensorKind::activation, value), g = add("g", TensorKind::gradient, result),
                 w = add("gw", TensorKind::parameter_gradient, weight);
  Op op{.name = "dw", .kind = kind, .phase = Phase::backward, .flops = Flops{flops}, .inputs = {g, x}, .outputs = {w}};
  if (makes_both) op.outputs.push_back(add("gx", TensorKind::gradient, value));
  std::int64_t moved = 0;
  for (const Tensor& tensor : graph.tensors) moved += tensor.bytes.count;
  op.bytes_moved = Bytes{moved};
  graph.ops.push_back(op);
  graph.source.dtype = "fp32";
  Product made;
  made.problem.platform = gpus({});
  Device& device = made.problem.platform.devices[0];
  device.takes_trace_times = false;
  device.peak = {{"fp32", FlopsPerSecond{100}}};
  device.memory_bandwidth = BytesPerSecond{10};
  device.launch_overhead = Seconds{1};
  made.problem.graph = std::move(graph);
  made.value = x;
  return made;
}

std::optional<OnPacked> on(const Product& product, const Codec& codec) {
  return on_packed(product.problem, product.op, DeviceId{0}, product.value, codec);
}

TEST_CASE("a product over sampled rows takes their share, and a kernel that gathers those of the gradient", "[codec]") {
  // x is 8 x 4, g 8 x 6: 2 * 8 * 4 * 6 = 384 flops, x 128 B, g 192 B, the weight's gradient 96 B
  Product product = product_of("mm", {8, 4}, {8, 6}, {4, 6}, 384, false);
  const Codec half{.kind = CodecKind::rows, .keep = 0.5};
  const std::optional<OnPacked> found = on(product, half);
  REQUIRE(found);
  CHECK(found->workspace == Bytes{4 * 6 * 4});
  // packed 4 x (16 + 8) B; of the gradient 96 B read, written and read; 96 B made: 96 + 288 + 96 B in 48 s, 1.92 s
  // computing
  CHECK(found->duration.value == Approx(48 + 2));
  product.problem.graph.ops[0].flops = Flops{384'000};  // then computing is longer: half of 3,840 s
  CHECK(on(product, half)->duration.value == Approx(1920 + 2));
  product.problem.graph.ops[0].duration = Seconds{10};  // a measured time is halved; gathering moves 192 B
  product.problem.platform.devices[0].takes_trace_times = true;
  CHECK(on(product, half)->duration.value == Approx(5 + 19.2 + 1));
  CHECK_FALSE(on(product, {.kind = CodecKind::quantize, .bits = 8}));
}

// x is 8 x 4, g 8 x 6, sums of rows 4 x 4 and 4 x 6: 2 * 4 * 8 * 6 = 384 flops to add up g, half of 384 the product.
TEST_CASE("a product over sums of rows also adds up the gradient's", "[codec]") {
  Product product = product_of("mm", {8, 4}, {8, 6}, {4, 6}, 384, false);
  const Codec half{.kind = CodecKind::projection, .keep = 0.5};
  const std::optional<OnPacked> found = on(product, half);
  REQUIRE(found);
  CHECK(found->workspace == Bytes{4 * 6 * 4});
  // packed 4 x 16 + 8 B; of the gradient 192 B read, 96 B written and read; 96 B made: 552 B in 55.2 s
  CHECK(found->duration.value == Approx(55.2 + 2));
  product.problem.graph.ops[0].flops = Flops{384'000};
  CHECK(on(product, half)->duration.value == Approx(1.5 * 3840 + 2));
  product.problem.graph.ops[0].duration = Seconds{10};
  product.problem.platform.devices[0].takes_trace_times = true;
  CHECK(on(product, half)->duration.value == Approx(15 + 28.8 + 1));
}

// The transform of g takes 5 * 8 * 6 * 3 = 720 flops, of 384, and as much memory as g.
TEST_CASE("a product over rows of a cosine transform also transforms the gradient", "[codec]") {
  Product product = product_of("mm", {8, 4}, {8, 6}, {4, 6}, 384, false);
  const Codec half{.kind = CodecKind::projection, .sums = Projection::dct, .keep = 0.5};
  const std::optional<OnPacked> found = on(product, half);
  REQUIRE(found);
  CHECK(found->workspace == Bytes{4 * 6 * 4 + 192});
  // packed 72 B; of the gradient 192 B read and written, 96 B read, written and read; 96 B made: 840 B in 84 s
  CHECK(found->duration.value == Approx(84 + 3));
  product.problem.graph.ops[0].flops = Flops{384'000};
  CHECK(on(product, half)->duration.value == Approx((0.5 + 720.0 / 384) * 3840 + 3));
  product.problem.graph.ops[0].duration = Seconds{10};
  product.problem.platform.devices[0].takes_trace_times = true;
  CHECK(on(product, half)->duration.value == Approx((0.5 + 720.0 / 384) * 10 + 57.6 + 2));
}

TEST_CASE("a product of blocks takes their share at its rate, and all of the gradient", "[codec]") {
  Product product = product_of("mm", {8, 4}, {8, 6}, {4, 6}, 384'000, false);
  const auto blocks = [](double rate) {  // of 4 x 2 blocks of 2 x 2 values 4 stay
    return Codec{.kind = CodecKind::block_sparse, .block = 2, .keep = 0.5, .product = rate};
  };
  CHECK_FALSE(on(product, blocks(0)));
  CHECK(on(product, blocks(1))->duration.value == Approx(1920 + 1));
  CHECK(on(product, blocks(0.5))->duration.value == Approx(3840 + 1));
  CHECK(on(product, blocks(1))->workspace == Bytes{0});
  product.problem.graph.ops[0].flops = Flops{0.1};  // 4 blocks of 16 + 4 B and 5 begins of rows for the 128 B of x
  CHECK(on(product, blocks(1))->duration.value == Approx((192 + 96 + 4 * 20 + 5 * 4) / 10.0 + 1));
  CHECK_FALSE(on(product_of("convolution_backward", {1, 1, 4, 4}, {1, 1, 4, 4}, {1, 1, 1, 1}, 64, true), blocks(1)));
}

TEST_CASE("a convolution of pixels on means takes a share of the weight's half of the flops", "[codec]") {
  // x is 1 x 2 x 4 x 4, g 1 x 3 x 4 x 4: both halves of 384,000 flops; x 128 B, g 192 B, weight 24 B, gx 128 B
  const Product product = product_of("convolution_backward", {1, 2, 4, 4}, {1, 3, 4, 4}, {3, 2, 1, 1}, 384'000, true);
  Codec means{.kind = CodecKind::pool, .window = 2, .product = 1};
  const std::optional<OnPacked> found = on(product, means);
  REQUIRE(found);
  CHECK(found->duration.value == Approx(1920 + 1920 / 4.0 + 2));
  CHECK(found->workspace == Bytes{3 * 4 * 4});
  means.product = 0;
  CHECK_FALSE(on(product, means));
  Product moves = product;  // x packed 32 B; g read twice, its means written and read
  moves.problem.graph.ops[0].flops = Flops{0.1};
  means.product = 1;
  CHECK(on(moves, means)->duration.value == Approx((32 + 192 + 24 + 128 + 192 + 48 + 48) / 10.0 + 2));
}

TEST_CASE("a convolution's kernel is known where channels come first and where they are last", "[codec]") {
  const auto kernel = [](const std::string& kind, const std::vector<std::int64_t>& weight) {
    Product product = product_of(kind, {1, 4, 4, 4}, {1, 4, 4, 4}, weight, 1, false);
    return kernel_of(product.problem.graph, product.problem.graph.ops[0]);
  };
  CHECK(kernel("convolution_backward", {16, 16, 3, 3}) == 3);
  CHECK(kernel("convolution_backward", {1, 1, 3, 3}) == 3);
  CHECK(kernel("convolution_backward", {16, 4, 7, 1}) == 7);  // and not of single pixels
  CHECK(kernel("convolution_weight_gradient", {1, 1, 4, 4}) == 1);
  CHECK(kernel("convolution_weight_gradient", {3, 3, 16, 16}) == 3);
}

TEST_CASE("what a codec takes beside is part of packing, and of nothing else", "[codec]") {
  const Product product = product_of("mm", {8, 4}, {8, 6}, {4, 6}, 384, false);
  const Graph& graph = product.problem.graph;
  const Device& device = product.problem.platform.devices[0];
  const Codec plain{.kind = CodecKind::quantize, .bits = 8, .group = 8, .group_bytes = 8};
  Codec waits = plain;
  waits.overhead = Seconds{7};
  const auto packing = [&](const Codec& codec) { return pack_time(codec, graph, graph.tensors[0], device).value; };
  const auto unpacking = [&](const Codec& codec) { return unpack_time(codec, graph, graph.tensors[0], device).value; };
  CHECK(packing(waits) == Approx(packing(plain) + 7));
  CHECK(unpacking(waits) == unpacking(plain));
}

}  // namespace
}  // namespace plimsoll
