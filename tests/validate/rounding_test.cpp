// Rounding by chance: the closed forms of what codecs lose against what the CPU's kernels lose, exact zeros, and that a
// seed says all.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "sim/core/predicted_error.h"
#include "validate/cpu/codec_kernels.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<float>;

Numbers normal_noise(std::size_t count, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  Numbers x(count);
  for (float& value : x) value = static_cast<float>(normal(generator));
  return x;
}

Numbers rectified_noise(std::size_t count, unsigned seed) {
  Numbers x = normal_noise(count, seed);
  for (float& value : x) value = std::max(value, 0.0F);
  return x;
}

Tensor tensor_of(const std::vector<std::int64_t>& shape) {
  Tensor tensor;
  tensor.name = "x";
  tensor.shape = shape;
  tensor.dtype = "fp32";
  tensor.bytes = Bytes{4};
  for (const std::int64_t d : shape) tensor.bytes = Bytes{tensor.bytes.count * d};
  return tensor;
}

std::vector<std::byte> packed_by(const Codec& codec, const Tensor& tensor, const Chance& chance, const Numbers& x) {
  Graph graph;
  REQUIRE(lacks_codec(codec, graph, tensor) == std::nullopt);
  std::vector<std::byte> packed(static_cast<std::size_t>(layout_bytes(codec, tensor).count));
  std::vector<std::byte> workspace(static_cast<std::size_t>(pack_cost(codec, graph, tensor).workspace.count));
  pack(codec, tensor, chance, std::as_bytes(std::span(x)).data(), packed.data(), workspace.data());
  return packed;
}

/// What the kernels give back of a value.
Numbers restored_by(const Codec& codec, const Tensor& tensor, const Chance& chance, const Numbers& x) {
  Numbers back(x.size());
  unpack(codec, tensor, packed_by(codec, tensor, chance, x).data(), std::as_writable_bytes(std::span(back)).data());
  return back;
}

double relative_distance(const Numbers& x, const Numbers& exact) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(double{x[i]} - double{exact[i]}, 2);
    whole += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / whole);
}

Codec groups_of(std::uint32_t bits, std::uint32_t group = 256) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = group, .group_bytes = 8};
}

Codec blocks_of(std::uint32_t window) {
  return {.kind = CodecKind::pool, .window = window, .channels_last = true};
}

/// As the program of ActNN has it: whole groups a sample, scales in bf16.
Codec actnn_groups(std::uint32_t bits) {
  return {.kind = CodecKind::quantize,
          .bits = bits,
          .group = 256,
          .group_bytes = 4,
          .padding = Padding::sample,
          .sample_bytes = 4};
}

struct Lossy {
  Codec codec;
  double stated;  ///< as measured by others of white noise, strategies/README.md's formulas
};

TEST_CASE("what the kernels lose of white noise is the closed form within 2 %", "[compression]") {
  const auto [codec, stated] =
      GENERATE(Lossy{groups_of(8), 0.009}, Lossy{groups_of(4), 0.154}, Lossy{groups_of(2), 0.771},
               Lossy{blocks_of(2), 0.866}, Lossy{blocks_of(4), 0.968}, Lossy{blocks_of(8), 0.992});
  INFO(text_of(codec));
  const Tensor tensor = tensor_of({4, 128, 128, 16});
  const Numbers x = normal_noise(std::size_t{4} * 128 * 128 * 16, 7);
  const double lost = relative_distance(restored_by(codec, tensor, {}, x), x);
  CHECK(lost == Approx(codec_error(codec, Noise::normal)).epsilon(0.02));
  CHECK(lost == Approx(stated).epsilon(0.02));
}

TEST_CASE("what the kernels lose of white noise after a ReLU is the closed form within 2 %", "[compression]") {
  const Codec codec =
      GENERATE(groups_of(8), groups_of(4), groups_of(2), groups_of(4, 64), blocks_of(2), blocks_of(4), blocks_of(8));
  INFO(text_of(codec));
  const Tensor tensor = tensor_of({4, 128, 128, 16});
  const Numbers x = rectified_noise(std::size_t{4} * 128 * 128 * 16, 8);
  const double lost = relative_distance(restored_by(codec, tensor, {}, x), x);
  CHECK(lost == Approx(codec_error(codec, Noise::rectified)).epsilon(0.02));
}

/// x^T dy, of x with its values and of x as a codec gives it back.
TEST_CASE("a weight's gradient has the relative error of its layer's input", "[compression]") {
  constexpr std::size_t rows = 1024, inputs = 128, outputs = 64;
  const Codec codec = GENERATE(groups_of(4), groups_of(2), actnn_groups(2));
  INFO(text_of(codec));
  const Tensor tensor = tensor_of({std::int64_t{rows}, std::int64_t{inputs}});
  const Numbers x = normal_noise(rows * inputs, 9), dy = normal_noise(rows * outputs, 10);
  const Numbers back = restored_by(codec, tensor, {}, x);
  Numbers exact(inputs * outputs, 0), made(inputs * outputs, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t o = 0; o < outputs; ++o) {
        exact[i * outputs + o] += x[r * inputs + i] * dy[r * outputs + o];
        made[i * outputs + o] += back[r * inputs + i] * dy[r * outputs + o];
      }
    }
  }
  CHECK(relative_distance(made, exact) == Approx(relative_distance(back, x)).epsilon(0.03));
}

TEST_CASE("what is exactly 0 after a ReLU is exactly 0 when it comes back, rounded by chance", "[compression]") {
  const std::uint32_t bits = GENERATE(1U, 2U, 4U, 8U);
  const Numbers x = rectified_noise(50 * 1031, 11);
  const Tensor tensor = tensor_of({50, 1031});
  Codec whole_groups = groups_of(bits);
  whole_groups.padding = Padding::tensor;
  for (const Codec& codec : {groups_of(bits), groups_of(bits, 8), whole_groups, actnn_groups(bits)}) {
    INFO(text_of(codec));
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const Numbers back = restored_by(codec, tensor, {.seed = seed}, x);
      std::size_t zeros = 0, wrong = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (x[i] != 0) continue;
        ++zeros;
        wrong += back[i] != 0 ? 1 : 0;
      }
      CHECK(zeros > x.size() / 3);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the same value and seed are packed to the same bytes, another seed to others", "[compression]") {
  const Codec codec = GENERATE(groups_of(4), actnn_groups(2), Codec{.kind = CodecKind::rows, .keep = 0.3});
  INFO(text_of(codec));
  const Tensor tensor = tensor_of({64, 300});
  const Numbers x = normal_noise(64 * 300, 12);
  const auto packed = packed_by(codec, tensor, {.seed = 5}, x);
  CHECK(packed == packed_by(codec, tensor, {.seed = 5}, x));
  CHECK(packed != packed_by(codec, tensor, {.seed = 6}, x));
  const Chance nearest{.rounding = Rounding::nearest, .seed = 5};
  CHECK(is_drawn(codec, Rounding::nearest) == (codec.kind == CodecKind::rows));
  const bool alike = packed_by(codec, tensor, nearest, x) == packed_by(codec, tensor, {Rounding::nearest, 6}, x);
  CHECK(alike == (codec.kind == CodecKind::quantize));
}

/// The mean over seeds: unbiased to the error of a mean, deviations not below the closed form's.
TEST_CASE("over seeds the mean of what comes back is the value", "[compression]") {
  constexpr int seeds = 64;
  const Tensor tensor = tensor_of({64, 256});
  const Numbers x = normal_noise(64 * 256, 13);
  Numbers mean(x.size(), 0);
  double one = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const Numbers back = restored_by(groups_of(2), tensor, {.seed = static_cast<std::uint64_t>(seed)}, x);
    one += relative_distance(back, x) / seeds;
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += back[i] / seeds;
  }
  CHECK(relative_distance(mean, x) == Approx(one / std::sqrt(seeds)).epsilon(0.05));
}

TEST_CASE("draws of different values with one seed have nothing to do with each other", "[compression]") {
  const Tensor tensor = tensor_of({64, 256});
  const Numbers x = normal_noise(64 * 256, 14);
  Numbers other = x;
  other[0] = -other[0];
  const Numbers a = restored_by(groups_of(2), tensor, {}, x), b = restored_by(groups_of(2), tensor, {}, other);
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 256; i < x.size(); ++i) {  // behind the group of the changed number
    both += double{a[i] - x[i]} * double{b[i] - x[i]};
    of_a += std::pow(a[i] - x[i], 2);
    of_b += std::pow(b[i] - x[i], 2);
  }
  CHECK(std::abs(both / std::sqrt(of_a * of_b)) < 0.04);  // five standard errors of a correlation of 16,000 pairs
}

}  // namespace
}  // namespace plimsoll
