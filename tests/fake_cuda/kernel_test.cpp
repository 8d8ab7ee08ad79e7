// Every kernel of the CUDA backend, as plain C++ on made-up streams and libraries, held against the CPU's.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/placed_values.h"
#include "tests/random_case.h"
#include "tests/training/op_cases.h"
#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/launch.h"

namespace plimsoll {
namespace {

TEST_CASE("every kind of op does what the CPU's kernel does, within its scratch", "[fake_cuda]") {
  fake::begin({});
  const std::vector<OpCase> cases = op_cases();
  for (const RandomCase seed : random_cases(1, cases.size())) {
    const OpCase& c = cases[seed - 1];
    INFO(c.op.kind << ", case " << seed);
    const std::optional<CudaKernel> kernel = make_cuda_kernel(c.graph, c.op, {});
    REQUIRE(kernel);
    OpValues values = random_values(c, seed);
    const OpValues expected = on_cpu(c, values);
    ScratchPiece scratch(kernel->scratch, 1 + (seed + 1) % 4);
    PlacedValues placed(values);
    KernelArguments arguments = placed.arguments();
    arguments.scratch = scratch.address();
    if (!values.statistics.empty()) arguments.statistics = values.statistics.data();
    fake::issued().clear();
    {
      const OwnedStream stream = new_stream();
      kernel->run(arguments, {*stream, nullptr, nullptr});
    }  // is drained
    placed.read_back(values);
    const auto products = std::ranges::count_if(fake::issued(), [](char each) { return each != 'C'; });
    CHECK(products <= (c.op.kind == "attention_qkv_gradient" ? 3 : 1));  // however many pictures and heads
    for (std::size_t i = 0; i < values.inputs.size(); ++i) {             // updates change them, to the CPU's bits
      if (c.op.kind == "optimizer") CHECK(values.inputs[i] == expected.inputs[i]);
    }
    for (std::size_t o = 0; o < values.outputs.size(); ++o) {
      CHECK(difference(values.outputs[o], expected.outputs[o]) <= 1e-5);
    }
    CHECK(difference(values.statistics, expected.statistics) <= 1e-5);
    CHECK(scratch.is_untouched_behind());
  }
}

TEST_CASE("sums of many numbers lose nothing in single precision", "[fake_cuda]") {
  fake::begin({});
  constexpr std::int64_t n = 400'000;
  const std::vector<float> ones(n, 1.0F), tenths(n, 1.1F);
  std::vector<float> dx(n);
  {
    const OwnedStream stream = new_stream();
    launch::softmax_gradient(ones.data(), tenths.data(), {1, n}, dx.data(), *stream);
  }
  const double expected = double{1.1F} * (1 - static_cast<double>(n));
  CHECK(std::abs(dx[7] / expected - 1) < 1.5e-7);  // in plain single precision a hundred times that
}

TEST_CASE("compression does what the plain loops do, bit for bit", "[fake_cuda]") {
  fake::begin({});
  for (const BlockSizes s : {BlockSizes{2, 9, 7, 5, 2}, BlockSizes{3, 1, 33, 4, 4}, BlockSizes{1, 8, 8, 1, 8}}) {
    std::vector<float> x(static_cast<std::size_t>(s.batch * s.height * s.width * s.channels));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<float> means(static_cast<std::size_t>(s.batch * s.rows() * s.columns() * s.channels)), back(x.size());
    std::vector<float> plain_means = means, plain_back = back;
    {
      const OwnedStream stream = new_stream();
      launch::block_means(x.data(), s, means.data(), *stream);
      launch::expand_blocks(means.data(), s, back.data(), *stream);
    }
    plain::block_means(x.data(), s, plain_means.data());
    plain::expand_blocks(plain_means.data(), s, plain_back.data());
    CHECK(means == plain_means);
    CHECK(back == plain_back);
  }
  const int bits = GENERATE(2, 4, 8);
  const std::int64_t numbers = GENERATE(1, 64, 129, 1003);
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const QuantizeSizes s{numbers, 64, bits};
    std::vector<float> x(static_cast<std::size_t>(numbers)), scales(static_cast<std::size_t>(2 * s.groups()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<float> back(x.size()), plain_scales = scales, plain_back = back;
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(s.packed_bytes())), plain_packed = packed;
    {
      const OwnedStream stream = new_stream();
      launch::quantize(x.data(), s, rounding, 9, scales.data(), packed.data(), *stream);
      launch::dequantize(packed.data(), scales.data(), s, back.data(), *stream);
    }
    plain::quantize(x.data(), s, rounding, 9, plain_scales.data(), plain_packed.data());
    plain::dequantize(plain_packed.data(), plain_scales.data(), s, plain_back.data());
    CHECK(scales == plain_scales);
    CHECK(packed == plain_packed);
    CHECK(back == plain_back);
  }
}

}  // namespace
}  // namespace plimsoll
