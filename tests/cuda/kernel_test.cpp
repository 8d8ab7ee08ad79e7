// Every kernel on the GPU against the CPU's, or against its plain loop.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/random_case.h"
#include "tests/training/op_cases.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/launch.h"

namespace plimsoll {
namespace {

/// Numbers on the device, given back when this dies.
template <class Number>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<Number>& numbers) : count_(numbers.size()) {
    CUDA_CHECK(cudaMalloc(&address_, std::max<std::size_t>(1, bytes())));
    CUDA_CHECK(cudaMemcpy(address_, numbers.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { static_cast<void>(cudaFree(address_)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  Number* data() const { return static_cast<Number*>(address_); }
  std::vector<Number> back() const {
    std::vector<Number> numbers(count_);
    CUDA_CHECK(cudaMemcpy(numbers.data(), address_, bytes(), cudaMemcpyDeviceToHost));
    return numbers;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(Number); }

  void* address_ = nullptr;
  std::size_t count_;
};

using DeviceFloats = std::unique_ptr<OnDevice<float>>;

OpValues on_gpu(const OpCase& c, const OpValues& values, CudaMachine& machine, bool tf32 = false) {
  const Gpu& gpu = machine.gpu(0);
  set_gpu(0);
  const std::optional<CudaKernel> kernel = make_cuda_kernel(c.graph, c.op, {*gpu.blas, *gpu.dnn, tf32});
  REQUIRE(kernel);
  std::vector<DeviceFloats> inputs, outputs;
  KernelArguments arguments;
  for (const std::vector<float>& input : values.inputs) {
    arguments.inputs.push_back(inputs.emplace_back(std::make_unique<OnDevice<float>>(input))->data());
  }
  for (const std::vector<float>& output : values.outputs) {
    arguments.outputs.push_back(outputs.emplace_back(std::make_unique<OnDevice<float>>(output))->data());
  }
  // Scratch of exactly its size: compute-sanitizer sees what is written behind it.
  const auto scratch_bytes = static_cast<std::size_t>(kernel->scratch.count);
  const OnDevice<unsigned char> scratch(std::vector<unsigned char>(scratch_bytes, 0xFF));
  arguments.scratch = scratch.data();
  const OnDevice<float> statistics(values.statistics);
  if (!values.statistics.empty()) arguments.statistics = statistics.data();
  const OwnedStream stream = new_stream();
  CUDA_CHECK(cudaDeviceSynchronize());
  kernel->run(arguments, {*stream, *gpu.blas, *gpu.dnn});
  CUDA_CHECK(cudaDeviceSynchronize());
  OpValues made;
  for (const DeviceFloats& input : inputs) made.inputs.push_back(input->back());
  for (const DeviceFloats& output : outputs) made.outputs.push_back(output->back());
  made.statistics = statistics.back();
  return made;
}

/// Inputs count too: updates change them.
double worst_difference(const OpValues& left, const OpValues& right) {
  double worst = difference(left.statistics, right.statistics);
  for (std::size_t i = 0; i < left.inputs.size(); ++i) {
    const bool same = std::memcmp(left.inputs[i].data(), right.inputs[i].data(), 4 * left.inputs[i].size()) == 0;
    if (!same) worst = std::max(worst, difference(left.inputs[i], right.inputs[i]));
  }
  for (std::size_t o = 0; o < left.outputs.size(); ++o) {
    worst = std::max(worst, difference(left.outputs[o], right.outputs[o]));
  }
  return worst;
}

bool same_bits(const OpValues& left, const OpValues& right) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
  };
  bool all = same(left.statistics, right.statistics);
  for (std::size_t i = 0; i < left.inputs.size(); ++i) all = all && same(left.inputs[i], right.inputs[i]);
  for (std::size_t o = 0; o < left.outputs.size(); ++o) all = all && same(left.outputs[o], right.outputs[o]);
  return all;
}

TEST_CASE("every kind of op gives on the GPU what it gives on the CPU", "[cuda]") {
  constexpr double rounding = 2e-5;  // of sums of up to 3600 floats in another order, relative to the largest number
  CudaMachine machine;
  const std::vector<OpCase> cases = op_cases();
  for (const RandomCase seed : random_cases(1, cases.size())) {
    const OpCase& c = cases[seed - 1];
    const OpValues values = random_values(c, seed);
    INFO(c.op.kind << ", seed " << seed);
    CHECK(worst_difference(on_gpu(c, values, machine), on_cpu(c, values)) <= rounding);
  }
}

TEST_CASE("every kernel gives the same bits again", "[cuda]") {
  CudaMachine machine;
  const std::vector<OpCase> cases = op_cases();
  for (const RandomCase seed : random_cases(100, 99 + cases.size())) {
    const OpCase& c = cases[seed - 100];
    const OpValues values = random_values(c, seed);
    INFO(c.op.kind << ", seed " << seed);
    CHECK(same_bits(on_gpu(c, values, machine), on_gpu(c, values, machine)));
  }
}

TEST_CASE("with TF32, products are right to ten bits", "[cuda]") {
  CudaMachine machine;
  for (const char* kind : {"linear", "linear_weight_gradient", "convolution", "attention_scores"}) {
    const OpCase c = op_case(kind);
    const OpValues values = random_values(c, 5);
    INFO(kind);
    CHECK(worst_difference(on_gpu(c, values, machine, true), on_cpu(c, values)) <= 4e-3);
  }
}

TEST_CASE("block means and their expansion are the plain loops'", "[cuda]") {
  set_gpu(0);
  for (const BlockSizes s : {BlockSizes{2, 9, 7, 5, 2}, BlockSizes{3, 1, 33, 4, 4}, BlockSizes{1, 8, 8, 1, 8}}) {
    const auto all = static_cast<std::size_t>(s.batch * s.height * s.width * s.channels);
    const auto reduced = static_cast<std::size_t>(s.batch * s.rows() * s.columns() * s.channels);
    std::vector<float> x(all), means(reduced), back(all);
    for (std::size_t i = 0; i < all; ++i) x[i] = static_cast<float>(i * i % 101) / 7;
    const OnDevice<float> device_x(x), device_means(means), device_back(back);
    launch::block_means(device_x.data(), s, device_means.data(), nullptr);
    launch::expand_blocks(device_means.data(), s, device_back.data(), nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    plain::block_means(x.data(), s, means.data());
    plain::expand_blocks(means.data(), s, back.data());
    CHECK(difference(device_means.back(), means) <= 1e-6);
    CHECK(difference(device_back.back(), back) <= 1e-6);
  }
}

TEST_CASE("quantization is the plain loop's but for numbers at the edge of two levels", "[cuda]") {
  set_gpu(0);
  for (const int bits : {2, 4, 8}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      const QuantizeSizes s{1003, 64, bits};
      std::vector<float> x(1003), scales(static_cast<std::size_t>(2 * s.groups())), back(1003);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
      std::vector<std::uint8_t> packed(static_cast<std::size_t>(s.packed_bytes()));
      const OnDevice<float> device_x(x), device_scales(scales), device_back(back);
      const OnDevice<std::uint8_t> device_packed(packed);
      launch::quantize(device_x.data(), s, rounding, 9, device_scales.data(), device_packed.data(), nullptr);
      launch::dequantize(device_packed.data(), device_scales.data(), s, device_back.data(), nullptr);
      CUDA_CHECK(cudaDeviceSynchronize());
      plain::quantize(x.data(), s, rounding, 9, scales.data(), packed.data());
      plain::dequantize(packed.data(), scales.data(), s, back.data());
      CHECK(difference(device_scales.back(), scales) <= 1e-6);
      const std::vector<float> here = device_back.back();
      std::size_t differing = 0;
      for (std::size_t i = 0; i < back.size(); ++i) {
        const float step = scales[2 * (i / 64) + 1];
        CHECK(std::abs(here[i] - back[i]) <= 1.001F * step);
        if (std::abs(here[i] - back[i]) > 0.001F * step) ++differing;
      }
      CHECK(differing <= 2);
    }
  }
}

}  // namespace
}  // namespace plimsoll
