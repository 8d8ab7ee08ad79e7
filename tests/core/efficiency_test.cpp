// Times of kernels by measured efficiencies: sizes of kernels from counts alone, grids, and the roofline's floor.

#include "sim/ops/efficiency.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/scaling.h"

using namespace plimsoll;

namespace {

/// 1,000 floating point operations a byte at the roofline's bend.
Device gpu() {
  Device device;
  device.name = "gpu";
  device.model = "made up";
  device.peak = {{"bf16", FlopsPerSecond{1e15}}, {"fp32", FlopsPerSecond{1e14}}};
  device.memory_bandwidth = BytesPerSecond{1e12};
  device.launch_overhead = Seconds{7e-6};
  return device;
}

TensorId add(Graph& graph, std::vector<std::int64_t> shape, const std::string& dtype = "bfloat16") {
  graph.tensors.push_back({.name = "t", .bytes = Bytes{1}, .shape = std::move(shape), .dtype = dtype});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

Op product(Graph& graph, std::string kind, std::vector<std::vector<std::int64_t>> inputs,
           std::vector<std::int64_t> output, double flops) {
  Op op{.name = "p", .kind = std::move(kind), .flops = Flops{flops}, .bytes_moved = Bytes{1}};
  for (std::vector<std::int64_t>& shape : inputs) op.inputs.push_back(add(graph, std::move(shape)));
  op.outputs = {add(graph, std::move(output))};
  return op;
}

double logarithm(double share) {
  return std::log(share);
}

}  // namespace

TEST_CASE("a grid holds its values, goes linearly in logarithms between, and keeps its border outside",
          "[efficiency]") {
  const SizeGrid grid({{1, 10, 1000}, {2, 8}}, {0, 1, 10, 11, 40, 41});
  for (const auto& [row, column, value] :
       {std::tuple{1.0, 2.0, 0.0}, {1.0, 8.0, 1.0}, {10.0, 2.0, 10.0}, {1000.0, 8.0, 41.0}}) {
    CHECK(grid.at(std::array{row, column}) == Approx(value).margin(1e-12));
  }
  CHECK(grid.at(std::array{100.0, 4.0}) == Approx(25.5));  // half of the way in both
  CHECK(grid.at(std::array{std::sqrt(10.0), 2.0}) == Approx(5));
  CHECK(grid.at(std::array{0.1, 64.0}) == Approx(1).margin(1e-12));
  CHECK(grid.at(std::array{1e6, 1.0}) == Approx(40));
  CHECK(grid.is_outside(std::array{1001.0, 2.0}));
  CHECK(!grid.is_outside(std::array{1000.0, 2.0}));
}

TEST_CASE("sizes of a product follow from its flops and how many numbers it reads and makes", "[efficiency]") {
  Graph graph;
  graph.source.dtype = "bf16";
  // y(16384, 4096) = x(16384, 14336) w^T: x as it lies in memory, w transposed
  const GpuKernel down = gpu_kernel(
      graph, product(graph, "mm", {{2, 8192, 14336}, {4096, 14336}}, {16384, 4096}, 2.0 * 16384 * 4096 * 14336));
  CHECK(down == GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .batch = 1, .m = 16384, .n = 4096, .k = 14336});
  // with a bias, which is no operand, and whose flops are counted
  const GpuKernel biased = gpu_kernel(graph, product(graph, "addmm", {{768}, {512, 3072}, {3072, 768}}, {512, 768},
                                                     2.0 * 512 * 768 * 3072 + 512 * 768));
  CHECK(biased == GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .batch = 1, .m = 512, .n = 768, .k = 3072});
  const GpuKernel batched = gpu_kernel(
      graph, product(graph, "bmm", {{96, 128, 64}, {96, 64, 100}}, {96, 128, 100}, 2.0 * 96 * 128 * 64 * 100));
  CHECK(batched == GpuKernel{.kind = KernelKind::batched_product,
                             .dtype = "bf16",
                             .batch = 96,
                             .m = 128,
                             .n = 100,
                             .k = 64,
                             .is_aligned = false});  // rows of 200 bytes
  // one product for queries, keys and values, and the gradients of its input and of its weight
  const GpuKernel three{.kind = KernelKind::product, .dtype = "bf16", .batch = 1, .m = 8192, .n = 2304, .k = 6144};
  const std::vector<std::int64_t> part{4, 2048, 768}, weight{6144, 3, 768};
  const double flops = 2.0 * 8192 * 2304 * 6144;
  Op qkv = product(graph, "linear", {{4, 2048, 6144}, weight, {3, 768}}, part, flops);
  for (int k = 0; k < 2; ++k) qkv.outputs.push_back(add(graph, part));
  CHECK(gpu_kernel(graph, qkv) == three);
  CHECK(gpu_kernel(graph, product(graph, "linear", {part, part, part, weight}, {4, 2048, 6144}, flops)) ==
        GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .batch = 1, .m = 8192, .n = 6144, .k = 2304});
  CHECK(gpu_kernel(graph, product(graph, "linear", {{4, 2048, 6144}, part, part, part}, weight, flops)) ==
        GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .batch = 1, .m = 6144, .n = 2304, .k = 8192});
  // counts that contradict the flops
  CHECK(gpu_kernel(graph, product(graph, "mm", {{8, 8}, {8, 8}}, {8, 8}, 5000)).kind == KernelKind::other);
  CHECK(gpu_kernel(graph, product(graph, "mm", {{}, {8, 8}}, {8, 8}, 1024)).kind == KernelKind::other);
}

TEST_CASE("sizes of attention follow from its flops, causal or whole, forward and backward", "[efficiency]") {
  Graph graph;
  graph.source.dtype = "bf16";
  const double numbers = 2.0 * 32 * 8192 * 128;
  for (const double products : {2.0, 4.0}) {
    const GpuKernel forward = gpu_kernel(
        graph, product(graph, "_scaled_dot_product_cudnn_attention", {{2, 8192, 32, 128}, {2, 8192, 8, 4, 128}},
                       {2, 32, 8192, 128}, products * numbers * 8192));
    CHECK(forward ==
          GpuKernel{.kind = KernelKind::attention, .dtype = "bf16", .sequence = 8192, .heads = 64, .head_size = 128});
  }
  const GpuKernel backward =
      gpu_kernel(graph, product(graph, "_scaled_dot_product_flash_attention_backward",
                                {{2, 32, 8192, 128}, {2, 32, 8192, 128}}, {2, 32, 8192, 128}, 5 * numbers * 8192));
  CHECK(backward.kind == KernelKind::attention_backward);
  CHECK(backward.sequence == 8192);
}

TEST_CASE("a kernel takes its roofline over the share that was measured, and never less than its peak allows",
          "[efficiency]") {
  const Device device = gpu();
  const KernelWork none;
  Efficiency efficiency;
  efficiency.kernel_floor = Seconds{2e-6};
  efficiency.product.emplace("bf16", SizeGrid({{1000, 4000}, {1000}, {1000}}, {logarithm(0.5), logarithm(2)}));
  const auto of = [](double m) {
    return GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .m = m, .n = 1000, .k = 1000};
  };
  // 2e9 flops take 2 us at the peak, 6e6 bytes 6 us: twice 6 + 2
  const std::optional<KernelTime> small = kernel_time(efficiency, device, of(1000), none);
  REQUIRE(small);
  CHECK(small->time.value == Approx(16e-6));
  CHECK(small->by == TimedBy::table);
  // half-way in logarithms the share is 1: 10e6 bytes
  CHECK(kernel_time(efficiency, device, of(2000), none)->time.value == Approx(12e-6));
  CHECK(kernel_time(efficiency, device, of(9000), none)->by == TimedBy::border);
  GpuKernel large{.kind = KernelKind::product, .dtype = "bf16", .m = 4e6, .n = 1e4, .k = 1e4};
  CHECK(kernel_time(efficiency, device, large, none)->time.value == Approx(2 * 4e6 * 1e8 / 1e15));
  // half precision shares the units of bf16; fp32 does not
  large.dtype = "fp16";
  CHECK(!kernel_time(efficiency, device, large, none));  // the device has no peak of it
  large.dtype = "fp32";
  CHECK(!kernel_time(efficiency, device, large, none));
}

TEST_CASE("products of rows that begin anywhere take their own share of the peak", "[efficiency]") {
  Graph graph;
  graph.source.dtype = "bf16";
  const auto head = [&](std::int64_t vocabulary, std::int64_t tokens) {
    const double flops = 2.0 * 768 * static_cast<double>(vocabulary * tokens);
    return product(graph, "linear", {{tokens, 768}, {vocabulary, 768}}, {tokens, vocabulary}, flops);
  };
  CHECK(gpu_kernel(graph, head(50304, 1000)).is_aligned);
  CHECK(gpu_kernel(graph, head(50304, 1001)).is_aligned);  // as many rows as there may be
  const GpuKernel odd = gpu_kernel(graph, head(50257, 1000));
  CHECK(!odd.is_aligned);
  CHECK(gpu_kernel(graph, product(graph, "linear", {{8, 3}}, {8, 3}, 0)).kind == KernelKind::other);
  const Device device = gpu();
  Efficiency efficiency;
  efficiency.kernel_floor = Seconds{2e-6};
  efficiency.product.emplace("bf16", SizeGrid({{1}, {1}, {1}}, {logarithm(0.5)}));
  const double whole = 2.0 * 1000 * 50257 * 768 / 1e15;
  CHECK(kernel_time(efficiency, device, odd, {})->time.value > 2 * whole);  // without a share of its own: the table
  efficiency.unaligned_product["bf16"] = 0.1;
  const std::optional<KernelTime> slow = kernel_time(efficiency, device, odd, {});
  REQUIRE(slow);
  CHECK(slow->time.value == Approx(10 * whole + 2e-6));
  CHECK(slow->by == TimedBy::share);
  const GpuKernel even = gpu_kernel(graph, head(50304, 1000));
  CHECK(kernel_time(efficiency, device, even, {})->by == TimedBy::border);
}

TEST_CASE("without a table products reach the share of their dtype", "[efficiency]") {
  const Device device = gpu();
  Efficiency efficiency;
  efficiency.kernel_floor = Seconds{2e-6};
  const GpuKernel kernel{.kind = KernelKind::product, .dtype = "fp32", .m = 1000, .n = 1000, .k = 1000};
  CHECK(!kernel_time(efficiency, device, kernel, {}));
  efficiency.product_without_table["fp32"] = 0.5;
  CHECK(kernel_time(efficiency, device, kernel, {})->time.value == Approx(2 * (2e9 / 1e14 + 2e-6)));
  CHECK(kernel_time(efficiency, device, kernel, {})->by == TimedBy::share);
}

TEST_CASE("convolutions reach a share of the roofline by their pass, and a whole backward takes both", "[efficiency]") {
  const Device device = gpu();
  Efficiency efficiency;
  efficiency.kernel_floor = Seconds{2e-6};
  efficiency.convolution["fp32"] = 0.5;
  efficiency.convolution_input_gradient["fp32"] = 0.4;
  Graph graph;
  graph.source.dtype = "fp32";
  const auto of = [&](const char* kind) {
    Op op = product(graph, kind, {}, {2, 8, 4, 4}, 4e9);
    op.inputs = {add(graph, {2, 8, 4, 4}, "float32")};
    return gpu_kernel(graph, op);
  };
  const KernelWork work{Flops{4e9}, Bytes{10'000'000}};  // 40 us at the peak, 10 us in memory
  CHECK(kernel_time(efficiency, device, of("conv2d"), work)->time.value == Approx(42e-6 / 0.5));
  CHECK(kernel_time(efficiency, device, of("convolution_input_gradient"), work)->time.value == Approx(42e-6 / 0.4));
  CHECK(!kernel_time(efficiency, device, of("convolution_weight_gradient"), work));
  CHECK(!kernel_time(efficiency, device, of("convolution_backward"), work));
  efficiency.convolution_weight_gradient["fp32"] = 0.2;
  CHECK(kernel_time(efficiency, device, of("convolution_backward"), work)->time.value ==
        Approx(22e-6 / 0.4 + 22e-6 / 0.2));
  const KernelWork moving{Flops{4e9}, Bytes{100'000'000}};  // 100 us in memory
  CHECK(kernel_time(efficiency, device, of("conv2d"), moving)->time.value == Approx(102e-6 / 0.5));
  graph.source.dtype = "tf32";
  CHECK(of("conv2d").dtype == "tf32");
  CHECK(!kernel_time(efficiency, device, of("conv2d"), work));
}

TEST_CASE("convolutions of pictures pixel by pixel have shares of their own, or those of others", "[efficiency]") {
  const Device device = gpu();
  Efficiency efficiency;
  efficiency.convolution["fp32"] = 0.5;
  efficiency.convolution_input_gradient["fp32"] = 0.4;
  efficiency.convolution_weight_gradient["fp32"] = 0.2;
  Graph graph;
  graph.source.dtype = "fp32";
  const auto seconds = [&](const char* kind, const char* format) {
    Op op = product(graph, kind, {}, {2, 8, 4, 4}, 4e9);
    op.inputs = {add(graph, {2, 8, 4, 4}, "float32")};
    op.attributes = {{"memory_format", format}};
    const KernelWork work{Flops{4e9}, Bytes{10'000'000}};  // 40 us at the peak, 10 us in memory
    return kernel_time(efficiency, device, gpu_kernel(graph, op), work)->time.value;
  };
  CHECK(seconds("conv2d", "channels_last") == Approx(40e-6 / 0.5));
  efficiency.channels_last_convolution["fp32"] = 0.8;
  efficiency.channels_last_convolution_weight_gradient["fp32"] = 0.25;
  CHECK(seconds("conv2d", "channels_last") == Approx(40e-6 / 0.8));
  CHECK(seconds("conv2d", "contiguous") == Approx(40e-6 / 0.5));
  CHECK(seconds("convolution_input_gradient", "channels_last") == Approx(40e-6 / 0.4));
  CHECK(seconds("convolution_weight_gradient", "channels_last") == Approx(40e-6 / 0.25));
  CHECK(seconds("convolution_backward", "channels_last") == Approx(20e-6 / 0.4 + 20e-6 / 0.25));
}

TEST_CASE("attention takes the table of the nearest head size, backwards a share of it", "[efficiency]") {
  const Device device = gpu();
  const KernelWork work{.flops = Flops{1e12}};  // 1 ms at the peak
  Efficiency efficiency;
  efficiency.attention["bf16"].emplace(64, SizeGrid({{1000}, {64}}, {logarithm(0.25)}));
  efficiency.attention["bf16"].emplace(128, SizeGrid({{1000, 4000}, {64}}, {logarithm(0.4), logarithm(0.5)}));
  efficiency.attention_backward = 0.8;
  GpuKernel kernel{.kind = KernelKind::attention, .dtype = "bf16", .sequence = 4000, .heads = 64, .head_size = 128};
  CHECK(kernel_time(efficiency, device, kernel, work)->time.value == Approx(2e-3));
  CHECK(kernel_time(efficiency, device, kernel, work)->by == TimedBy::table);
  kernel.head_size = 80;  // nearer to 64 in logarithms
  CHECK(kernel_time(efficiency, device, kernel, work)->time.value == Approx(4e-3));
  CHECK(kernel_time(efficiency, device, kernel, work)->by == TimedBy::border);
  kernel.head_size = 128;
  kernel.kind = KernelKind::attention_backward;
  CHECK(kernel_time(efficiency, device, kernel, work)->time.value == Approx(2.5e-3));
}

TEST_CASE("other kernels reach a share of the bandwidth by their sort", "[efficiency]") {
  const Device device = gpu();
  Efficiency efficiency;
  efficiency.kernel_floor = Seconds{1e-6};
  efficiency.elementwise = 0.8;
  efficiency.norm = 0.5;
  efficiency.optimizer = 0.25;
  const KernelWork work{.flops = {}, .bytes = Bytes{1'000'000}, .traffic = 2, .launches = 3};
  const auto time = [&](KernelKind kind) { return kernel_time(efficiency, device, {.kind = kind}, work)->time.value; };
  CHECK(time(KernelKind::elementwise) == Approx(2.5e-6 + 3e-6));
  CHECK(time(KernelKind::norm) == Approx(4e-6 + 3e-6));
  CHECK(time(KernelKind::softmax) == Approx(2e-6 + 3e-6));
  CHECK(time(KernelKind::optimizer) == Approx(8e-6 + 3e-6));
  CHECK(!kernel_time(efficiency, device, {.kind = KernelKind::other}, work));
}

TEST_CASE("a graph's ops take the times of tables where the device has them, others their rooflines", "[efficiency]") {
  Graph graph;
  graph.source = {.kind = Source::Kind::computed, .dtype = "bf16", .notes = {}};
  const double flops = 2e9;
  graph.ops = {product(graph, "mm", {{1000, 1000}, {1000, 1000}}, {1000, 1000}, flops),
               product(graph, "convolution", {{1000, 1000}, {1000, 1000}}, {1000, 1000}, flops)};
  for (Op& op : graph.ops) op.bytes_moved = Bytes{6'000'000};
  Device device = gpu();
  const auto time = [&](std::size_t op) { return duration(graph, graph.ops[op], device, Saving::keep)->value; };
  CHECK(time(0) == Approx(6e-6 + 7e-6));
  CHECK(timed_by(graph, graph.ops[0], device) == TimedBy::roofline);
  auto efficiency = std::make_shared<Efficiency>();
  efficiency->product.emplace("bf16", SizeGrid({{1000}, {1000}, {1000}}, {logarithm(0.5)}));
  device.efficiency = efficiency;
  CHECK(time(0) == Approx(12e-6));
  CHECK(timed_by(graph, graph.ops[0], device) == TimedBy::table);
  CHECK(time(1) == Approx(6e-6 + 7e-6));
  CHECK(timed_by(graph, graph.ops[1], device) == TimedBy::roofline);
  // under the load of a whole iteration kernels with a figure take longer, what has none keeps its roofline
  efficiency->sustained = 1.25;
  CHECK(time(0) == Approx(15e-6));
  CHECK(time(1) == Approx(6e-6 + 7e-6));
  CHECK(efficiency->moving(3e6, device).value == Approx(1.25 * 3e6 / device.memory_bandwidth->value));
  efficiency->sustained = 1;
  // what was measured on the device stays
  graph.source.device = device.model;
  graph.ops[0].duration = Seconds{1};
  CHECK(time(0) == 1);
  CHECK(!timed_by(graph, graph.ops[0], device));
}

TEST_CASE("a stage takes the sum of the kernels that it is made of where the device has efficiencies", "[efficiency]") {
  const StageKernel product{{.kind = KernelKind::product, .dtype = "bf16", .m = 1000, .n = 1000, .k = 1000},
                            {Flops{2e9}, Bytes{6'000'000}},
                            2,
                            true};
  const StageKernel moving{{.kind = KernelKind::elementwise}, {Flops{}, Bytes{3'000'000}}};
  const StageKernel other{{.kind = KernelKind::other}, {Flops{5e9}, Bytes{1}}};
  Stage stage;
  stage.name = "stage";
  stage.forward = stage.forward_nograd = stage.backward_weight = Seconds{1};
  stage.backward = Seconds{4};
  stage.forward_flops = stage.backward_flops = Flops{1e10};
  stage.forward_bytes_moved = stage.backward_bytes_moved = Bytes{1};
  stage.forward_made_of = StageKernels({product, moving});
  stage.backward_made_of = StageKernels({moving, product, other});
  Chain chain;
  chain.source.dtype = "bf16";
  chain.stages = {stage};

  Device device = gpu();
  CHECK(scaled_to(chain, device).chain.stages[0].forward.value == Approx(10e-6 + 7e-6));  // the stage's roofline
  auto efficiency = std::make_shared<Efficiency>();
  efficiency->product.emplace("bf16", SizeGrid({{1000}, {1000}, {1000}}, {logarithm(0.5)}));
  efficiency->elementwise = 0.75;
  efficiency->kernel_floor = Seconds{1e-6};
  device.efficiency = efficiency;
  const double products = 2 * (6e-6 + 1e-6) / 0.5, moves = 4e-6 + 1e-6, others = 5e-6 + 7e-6;
  const Stage scaled = scaled_to(chain, device).chain.stages[0];
  CHECK(scaled.forward.value == Approx(products + moves));
  CHECK(scaled.backward.value == Approx(products + moves + others));
  CHECK(scaled.backward_weight.value == Approx(products));
  chain.stages[0].backward_made_of = StageKernels({moving, other});  // of which none makes gradients of parameters
  const Stage shared = scaled_to(chain, device).chain.stages[0];
  CHECK(shared.backward.value == Approx(moves + others));
  CHECK(shared.backward_weight.value == Approx((moves + others) / 4));
  device.peak.erase("bf16");  // an unknown kernel: as without the list
  CHECK(scaled_to(chain, device).refused.find("gives no peak for bf16") != std::string::npos);
}

// What lies around a place, with its weights, sums to what the grid says there: inside, at points, and beyond borders.
TEST_CASE("a grid's value is the sum of the shares of its points", "[efficiency]") {
  std::vector<double> values;
  for (int v = 0; v < 2 * 3 * 4; ++v) values.push_back(std::sin(v));
  const SizeGrid grid({{1, 10}, {2, 4, 64}, {1, 3, 9, 27}}, values);
  for (const double m : {0.5, 1.0, 3.0, 10.0, 40.0}) {
    for (const double n : {1.0, 2.0, 5.0, 64.0, 65.0}) {
      for (const double k : {0.1, 1.0, 4.0, 9.0, 30.0}) {
        const std::array sizes{m, n, k};
        const GridShares around = grid.shares(sizes);
        double sum = 0;
        for (std::size_t c = 0; c < around.count; ++c) sum += around.weights[c] * values[around.points[c]];
        CHECK(grid.at(sizes) == Approx(sum).margin(1e-14));
      }
    }
  }
}

// Axes of any spacing, also several sizes within an octave and octaves without one: what a search by halves finds.
TEST_CASE("a grid finds the two sizes round any size", "[efficiency]") {
  std::mt19937 random(11);
  for (int axis = 0; axis < 200; ++axis) {
    std::vector<double> sizes{std::exp2(std::uniform_real_distribution(-3.0, 8.0)(random))}, values{0};
    while (sizes.size() < 1 + axis % 20U) {
      sizes.push_back(sizes.back() * std::exp2(std::uniform_real_distribution(0.01, 3.0)(random)));
      values.push_back(std::uniform_real_distribution(-1.0, 1.0)(random));
    }
    const SizeGrid grid({sizes}, values);
    for (int query = 0; query < 50; ++query) {
      const double size =
          query < 20 ? sizes[query % sizes.size()] : std::exp2(std::uniform_real_distribution(-6.0, 40.0)(random));
      const auto above = std::upper_bound(sizes.begin(), sizes.end(), size);
      double expected = above == sizes.begin() ? values.front() : values.back();
      if (above != sizes.begin() && above != sizes.end()) {
        const std::size_t high = static_cast<std::size_t>(above - sizes.begin());
        const double part = std::log2(size / sizes[high - 1]) / std::log2(sizes[high] / sizes[high - 1]);
        expected = (1 - part) * values[high - 1] + part * values[high];
      }
      CHECK(grid.at(std::array{size}) == Approx(expected).margin(1e-9));
    }
  }
}
