// What packed forms keep of a value: by hand, and on white noise against the formulas in docs/strategies/compression.

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "validate/gradient_error.h"
#include "validate/reference/compression.h"
#include "validate/reference/sparse_forms.h"

namespace plimsoll {
namespace {

TEST_CASE("a mask of signs by hand: a bit or a byte a value, set above 0 only", "[compression]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y{1, 0, -1, 2, -0.0F, nan, 0, 3, 4};
  std::vector<std::uint8_t> bits(2), bytes(9);
  plain::sign_mask(y.data(), 9, 1, bits.data());
  CHECK(bits == std::vector<std::uint8_t>{0b10001001, 1});
  plain::sign_mask(y.data(), 9, 8, bytes.data());
  CHECK(bytes == std::vector<std::uint8_t>{1, 0, 0, 1, 0, 0, 0, 1, 1});
  const std::vector<float> dy{1, -2, 3, -4, 5, 6, 7, 8, 9}, expected{1, 0, 0, -4, 0, 0, 0, 8, 9};
  std::vector<float> dx(9);
  plain::relu_gradient(bits.data(), 1, dy.data(), 9, dx.data());
  CHECK(dx == expected);
  std::vector<float> of_bytes(9);
  plain::relu_gradient(bytes.data(), 8, dy.data(), 9, of_bytes.data());
  CHECK(of_bytes == expected);
}

TEST_CASE("values without zeros by hand: -0 is kept, and what does not fit is counted but not written",
          "[compression]") {
  const std::vector<float> x{0, 5, 0, 0, -0.0F, 7, 0, 0, 0, 9};
  std::vector<float> values(5, -1), back(10, -1);
  std::vector<std::uint8_t> mask(2);
  CHECK(plain::without_zeros(x.data(), 10, 5, values.data(), mask.data()) == 4);
  CHECK(mask == std::vector<std::uint8_t>{0b00110010, 0b10});
  CHECK(values == std::vector<float>{5, -0.0F, 7, 9, -1});
  plain::with_zeros(values.data(), mask.data(), 10, back.data());
  CHECK(back == x);
  CHECK(std::signbit(back[4]));
  std::vector<float> few(3, -1);
  CHECK(plain::without_zeros(x.data(), 10, 2, few.data(), mask.data()) == 4);
  CHECK(few[2] == -1);
}

TEST_CASE("block sparse rows by hand: the largest blocks, of equal ones the first, edges filled up", "[compression]") {
  const std::vector<float> x{1, 0, 9, 9, 2,  //
                             0, 0, 9, 9, 0,  //
                             5, 5, 1, 0, 2};
  const SparseSizes s{3, 5, 2, 3};  // norms 1, 324, 4 above 50, 1, 4
  std::vector<std::int32_t> first(3), column(3);
  std::vector<float> norms(6), values(12), back(15);
  plain::largest_blocks(x.data(), s, norms.data(), {first.data(), column.data(), values.data()});
  CHECK(first == std::vector<std::int32_t>{0, 2, 3});
  CHECK(column == std::vector<std::int32_t>{1, 2, 0});
  CHECK(values == std::vector<float>{9, 9, 9, 9, 2, 0, 0, 0, 5, 5, 0, 0});
  plain::with_zero_blocks(first.data(), column.data(), values.data(), s, back.data());
  CHECK(back == std::vector<float>{0, 0, 9, 9, 2, 0, 0, 9, 9, 0, 5, 5, 0, 0, 0});
}

TEST_CASE("block sparse rows without a block, and with all of them", "[compression]") {
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  for (const std::int64_t kept : {0, 2}) {
    const SparseSizes s{2, 3, 2, kept};
    std::vector<std::int32_t> first(2), column(2);
    std::vector<float> norms(2), values(8), back(6, -1);
    plain::largest_blocks(x.data(), s, norms.data(), {first.data(), column.data(), values.data()});
    plain::with_zero_blocks(first.data(), column.data(), values.data(), s, back.data());
    CHECK(back == (kept == 0 ? std::vector<float>(6) : x));
  }
}

TEST_CASE("a block's maximum and soft mean by hand", "[compression]") {
  const std::vector<float> x{-1, -2, -3, -4, -5, -6};  // 2 x 3, blocks of 2 x 2
  const BlockSizes s{1, 2, 3, 1, 2};
  std::vector<float> values(2);
  plain::block_maxima(x.data(), s, values.data());
  CHECK(values == std::vector<float>{-1, -3});
  plain::block_soft_means(x.data(), s, values.data());
  double weights = 0, sum = 0;
  for (const double v : {-1.0, -2.0, -4.0, -5.0}) {
    weights += std::exp(v);
    sum += v * std::exp(v);
  }
  CHECK(values[0] == Approx(sum / weights));
  weights = std::exp(-3) + std::exp(-6);
  CHECK(values[1] == Approx((-3 * std::exp(-3) - 6 * std::exp(-6)) / weights));
}

std::vector<float> white_noise(std::size_t count) {
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(normal(generator));
  return x;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& back) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = double{back[i]} - double{x[i]};
    difference += d * d;
    whole += double{x[i]} * double{x[i]};
  }
  return std::sqrt(difference / whole);
}

double error_of_quantization(const std::vector<float>& x, int bits, Rounding rounding) {
  const QuantizeSizes s{static_cast<std::int64_t>(x.size()), 256, bits};
  std::vector<float> scales(static_cast<std::size_t>(2 * s.groups())), back(x.size());
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(s.packed_bytes()));
  plain::quantize(x.data(), s, rounding, 3, scales.data(), packed.data());
  plain::dequantize(packed.data(), scales.data(), s, back.data());
  return relative_error(x, back);
}

TEST_CASE("quantized white noise has the error of the formula, and rounded to the nearest less by the root of 2",
          "[compression]") {
  const std::vector<float> x = white_noise(std::size_t{1} << 20U);
  const auto [bits, error] = GENERATE(std::pair{8, 0.00907}, std::pair{4, 0.1542}, std::pair{2, 0.771});
  INFO(bits << " bits");
  CHECK(error_of_quantization(x, bits, Rounding::stochastic) == Approx(error).epsilon(0.02));
  CHECK(error_of_quantization(x, bits, Rounding::nearest) == Approx(error / std::sqrt(2)).epsilon(0.02));
}

TEST_CASE("pooled white noise has the error of the formula", "[compression]") {
  const std::vector<float> x = white_noise(std::size_t{4} * 128 * 128 * 16);
  const auto [window, error] = GENERATE(std::pair{2, 0.866}, std::pair{4, 0.968}, std::pair{8, 0.992});
  const BlockSizes s{4, 128, 128, 16, window};
  std::vector<float> means(static_cast<std::size_t>(s.batch * s.rows() * s.columns() * s.channels)), back(x.size());
  plain::block_means(x.data(), s, means.data());
  plain::expand_blocks(means.data(), s, back.data());
  CHECK(relative_error(x, back) == Approx(error).epsilon(0.02));
}

Graph graph_of_gradients(const std::vector<std::string>& names) {
  Graph graph;
  for (const std::string& name : names) {
    Tensor tensor;
    tensor.name = name;
    tensor.kind = TensorKind::parameter_gradient;
    graph.tensors.push_back(tensor);
  }
  return graph;
}

std::vector<std::byte> bytes_of_numbers(const std::vector<float>& numbers) {
  const auto span = std::as_bytes(std::span(numbers));
  return {span.begin(), span.end()};
}

TEST_CASE("the error of gradients over runs by hand: mean, deviation, bias, and the distance to other batches",
          "[compression]") {
  const Graph graph = graph_of_gradients({"a", "b"});
  const auto run = [](const std::vector<float>& a, const std::vector<float>& b) {
    Replayed made;
    made.values = {{"a", bytes_of_numbers(a)}, {"b", bytes_of_numbers(b)}};
    return made;
  };
  ErrorMeter meter(graph, run({3, 4}, {0, 5}));
  meter.add_run(run({3, 5}, {0, 5}));    // a: 1/5
  meter.add_run(run({3, 1}, {0, 5}));    // a: 3/5; the mean of both is {3, 3}
  meter.add_batch(run({4, 3}, {0, 0}));  // a: sqrt(2)/5, cosine 24/25; b: 1, cosine 0
  const MeasuredErrors errors = meter.errors();
  CHECK(errors.runs == 2);
  CHECK(errors.batches == 1);
  const MeasuredError& a = errors.of.at("a");
  CHECK(a.mean.relative == Approx(0.4));
  CHECK(a.deviation == Approx(std::sqrt(0.08)));  // 0.2 and 0.6 about 0.4, over one less than two
  CHECK(a.mean.cosine == Approx((29 / (5 * std::sqrt(34)) + 13 / (5 * std::sqrt(10))) / 2));
  CHECK(a.bias == Approx(0.2));
  CHECK(a.noise.relative == Approx(std::sqrt(2) / 5));
  CHECK(a.noise.cosine == Approx(0.96));
  const MeasuredError& b = errors.of.at("b");
  CHECK(b.mean.relative == 0);
  CHECK(b.mean.cosine == 1);
  CHECK(b.noise.relative == Approx(1));
  CHECK(b.noise.cosine == 0);
  CHECK(errors.whole.mean.relative == Approx((1 + 3) / std::sqrt(50) / 2));
  CHECK(errors.whole.bias == Approx(1 / std::sqrt(50)));
  CHECK(errors.whole.noise.relative == Approx(std::sqrt(27.0 / 50)));
}

TEST_CASE("the error of a gradient by hand", "[compression]") {
  const Graph graph = graph_of_gradients({"a", "b", "c"});
  Replayed run, exact;
  run.values = {{"a", bytes_of_numbers({3, 4})}, {"b", bytes_of_numbers({1, 1})}, {"c", bytes_of_numbers({1})}};
  exact.values = {{"a", bytes_of_numbers({3, 4})}, {"b", bytes_of_numbers({1, 0})}, {"c", bytes_of_numbers({0})}};
  const GradientErrors errors = gradient_errors(graph, run, exact);
  CHECK(errors.of.at("a").relative == 0);
  CHECK(errors.of.at("a").cosine == 1);
  CHECK(errors.of.at("b").relative == Approx(1));
  CHECK(errors.of.at("b").cosine == Approx(std::sqrt(0.5)));
  CHECK(std::isinf(errors.of.at("c").relative));
  CHECK(errors.of.at("c").cosine == 0);
  CHECK(errors.whole.relative == Approx(std::sqrt(2.0 / 26)));
  CHECK(errors.whole.cosine == Approx(26 / std::sqrt(28.0 * 26)));
}

}  // namespace
}  // namespace plimsoll
