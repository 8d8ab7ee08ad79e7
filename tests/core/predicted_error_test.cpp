// Closed forms of errors against what plain loops lose of random numbers, and how errors reach gradients.

#include "sim/codec/predicted_error.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

std::vector<double> noise(std::size_t count, bool rectified, std::uint64_t seed = 7) {
  Random random(seed);
  std::vector<double> values(count);
  for (double& value : values) {
    value = std::sqrt(-2 * std::log(1 - random.unit())) * std::cos(2 * std::numbers::pi * random.unit());
    if (rectified) value = std::max(value, 0.0);
  }
  return values;
}

double relative_error(const std::vector<double>& restored, const std::vector<double>& values) {
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += (restored[i] - values[i]) * (restored[i] - values[i]);
    all += values[i] * values[i];
  }
  return std::sqrt(wrong / all);
}

/// Means of `averaged` values in a row; groups of them share minimum and range and are rounded up or down by chance.
std::vector<double> quantized(const std::vector<double>& values, const Codec& codec) {
  Random random(99);
  std::vector<double> restored = values;
  const std::size_t row = codec.averaged, group = codec.group * row;
  for (std::size_t i = 0; i < values.size(); i += row) {
    double mean = 0;
    for (std::size_t j = i; j < i + row; ++j) mean += values[j] / static_cast<double>(row);
    std::fill_n(restored.begin() + static_cast<std::ptrdiff_t>(i), row, mean);
  }
  for (std::size_t first = 0; first < values.size(); first += group) {
    const auto begin = restored.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(group);
    const double least = *std::min_element(begin, end), most = *std::max_element(begin, end);
    const double step = (most - least) / (std::exp2(codec.bits) - 1);
    for (std::size_t i = 0; i < group; i += row) {
      const double number = std::floor((begin[static_cast<std::ptrdiff_t>(i)] - least) / step + random.unit());
      std::fill_n(begin + static_cast<std::ptrdiff_t>(i), row, least + number * step);
    }
  }
  return restored;
}

std::vector<double> means(const std::vector<double>& values, std::size_t of) {
  std::vector<double> restored(values.size());
  for (std::size_t i = 0; i < values.size(); i += of) {
    double sum = 0;
    for (std::size_t j = i; j < i + of; ++j) sum += values[j];
    for (std::size_t j = i; j < i + of; ++j) restored[j] = sum / static_cast<double>(of);
  }
  return restored;
}

std::vector<double> largest_blocks(const std::vector<double>& values, std::size_t of, double keep) {
  std::vector<double> norms;
  for (std::size_t i = 0; i < values.size(); i += of) {
    double sum = 0;
    for (std::size_t j = i; j < i + of; ++j) sum += values[j] * values[j];
    norms.push_back(sum);
  }
  std::vector<double> sorted = norms;
  std::ranges::sort(sorted);
  const double least = sorted[static_cast<std::size_t>((1 - keep) * static_cast<double>(sorted.size()))];
  std::vector<double> restored = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (norms[i / of] < least) restored[i] = 0;
  }
  return restored;
}

constexpr std::size_t many = std::size_t{1} << 20U;

TEST_CASE("errors of codecs on white noise are those of random numbers", "[codec][error]") {
  for (const bool rectified : {false, true}) {
    const std::vector<double> values = noise(many, rectified);
    const Noise of = rectified ? Noise::rectified : Noise::normal;
    for (const std::uint32_t window : {2U, 4U, 8U}) {
      const double measured = relative_error(means(values, std::size_t{window} * window), values);
      CHECK(codec_error({.kind = CodecKind::pool, .window = window}, of) == Approx(measured).epsilon(0.01));
    }
    for (const std::uint32_t bits : {2U, 4U, 8U}) {
      const Codec codec{.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
      INFO(bits << " bits, rectified " << rectified);
      CHECK(codec_error(codec, of) == Approx(relative_error(quantized(values, codec), values)).epsilon(0.03));
    }
  }
  const std::vector<double> values = noise(many, false);
  for (const double keep : {0.1, 0.25, 0.5}) {
    const double measured = relative_error(largest_blocks(values, 64, keep), values);
    CHECK(codec_error({.kind = CodecKind::block_sparse, .block = 8, .keep = keep}, Noise::normal) ==
          Approx(measured).epsilon(0.01));
  }
  const Codec averaged{.kind = CodecKind::quantize, .bits = 4, .group = 128, .group_bytes = 8, .averaged = 4};
  CHECK(codec_error(averaged, Noise::normal) ==
        Approx(relative_error(quantized(values, averaged), values)).epsilon(0.02));
  CHECK(codec_error({.kind = CodecKind::mask, .bits = 1}, Noise::normal) == 0);
  CHECK(codec_error({.kind = CodecKind::zero_run, .keep = 0.5}, Noise::rectified) == 0);
}

// Measured with PyTorch on white images: errors of the first convolution's weight gradient.
TEST_CASE("errors of codecs on white noise are the published ones", "[codec][error]") {
  const auto of_bits = [](std::uint32_t bits) {
    return codec_error({.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8}, Noise::normal);
  };
  CHECK(of_bits(2) == Approx(0.771).epsilon(0.02));
  CHECK(of_bits(4) == Approx(0.154).epsilon(0.02));
  CHECK(of_bits(8) == Approx(0.009).epsilon(0.02));
  const auto of_window = [](std::uint32_t window) {
    return codec_error({.kind = CodecKind::pool, .window = window}, Noise::normal);
  };
  CHECK(of_window(2) == Approx(0.866).margin(0.0005));
  CHECK(of_window(4) == Approx(0.968).margin(0.0005));
  CHECK(of_window(8) == Approx(0.992).margin(0.0005));
}

TEST_CASE("a GELU passes on the square of its second derivative", "[codec][error]") {
  double first = 0, second = 0;
  constexpr double h = 1e-4;
  for (double x = -9; x < 9; x += h) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const auto slope = [](double at) {
      return 0.5 * std::erfc(-at / std::numbers::sqrt2) + at * std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
    };
    const double bend = (slope(x + h) - slope(x - h)) / (2 * h);
    first += slope(x) * slope(x) * density;
    second += bend * bend * density;
  }
  CHECK(second / first == Approx(0.605).margin(0.001));
}

}  // namespace
}  // namespace plimsoll
