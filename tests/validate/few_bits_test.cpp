// Packed forms of few bits by hand: narrow floats, padded groups, steps of a derivative, compressed rows, sampled rows.

#include "validate/reference/few_bits.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "sim/codec/predicted_error.h"
#include "validate/reference/formulas.h"
#include "validate/reference/padded_groups.h"
#include "validate/reference/sampled_rows.h"

namespace plimsoll {
namespace {

TEST_CASE("narrow floats are those of IEEE 754, rounded to the nearest even", "[compression]") {
  constexpr FloatFormat half{16, 5}, brain{16, 8}, eight{8, 4};
  const auto code = [](float x, const FloatFormat& format) { return plain::narrowed(x, format); };
  CHECK(code(1.0F, half) == 0x3c00);
  CHECK(code(-2.0F, half) == 0xc000);
  CHECK(code(1.0F / 3, half) == 0x3555);
  CHECK(code(65504.0F, half) == 0x7bff);
  CHECK(code(65519.0F, half) == 0x7bff);
  CHECK(code(65520.0F, half) == 0x7c00);                  // halfway beyond the largest: infinity
  CHECK(code(std::ldexp(1.0F, -24), half) == 1);          // the smallest
  CHECK(code(std::ldexp(1.0F, -25), half) == 0);          // halfway, to even
  CHECK(code(std::ldexp(1.5F, -24), half) == 2);          // halfway, to even
  CHECK(code(std::ldexp(1.0F, -14), half) == 0x0400);     // the smallest normal one
  CHECK(code(std::ldexp(2047.0F, -25), half) == 0x0400);  // 1023.5 of the smallest
  CHECK(code(1.0F + std::ldexp(1.0F, -11), half) == 0x3c00);
  CHECK(code(1.0F + std::ldexp(3.0F, -11), half) == 0x3c02);
  CHECK(code(3.14159274F, brain) == 0x4049);
  CHECK(code(1.0F, eight) == 0x38);
  CHECK(code(240.0F, eight) == 0x77);
  CHECK(code(-0.0F, eight) == 0x80);
  for (const FloatFormat& format : {half, brain, eight}) {
    for (std::uint32_t each = 0; each < (1U << format.bits); ++each) {
      const float value = plain::widened(each, format);
      if (std::isnan(value)) continue;
      CHECK(plain::narrowed(value, format) == each);
    }
    CHECK(std::isnan(plain::widened(plain::narrowed(std::numeric_limits<float>::quiet_NaN(), format), format)));
  }
}

/// By arithmetic in double precision.
std::uint32_t narrowed_by_arithmetic(float x, const FloatFormat& format) {
  const std::uint32_t sign = std::signbit(x) ? 1U << (format.bits - 1) : 0U;
  const std::uint32_t infinity = ((1U << format.exponent) - 1U) << format.fraction();
  if (std::isnan(x)) return sign | infinity | 1U;
  const double size = std::abs(static_cast<double>(x));
  if (size == 0) return sign;
  if (std::isinf(x)) return sign | infinity;
  const int least = 1 - format.bias();  // exponent of the smallest normal numbers, and of those below them
  const double unit = std::ldexp(1.0, std::max(std::ilogb(size), least) - format.fraction());
  const double rounded = std::nearbyint(size / unit) * unit;
  if (rounded > std::ldexp(2.0 - std::ldexp(1.0, -format.fraction()), format.bias())) return sign | infinity;
  if (rounded < std::ldexp(1.0, least)) return sign | static_cast<std::uint32_t>(rounded / unit);
  const int written = std::ilogb(rounded);
  const double fraction = std::ldexp(rounded, format.fraction() - written) - std::ldexp(1.0, format.fraction());
  return sign | static_cast<std::uint32_t>(written + format.bias()) << format.fraction() |
         static_cast<std::uint32_t>(fraction);
}

float widened_by_arithmetic(std::uint32_t code, const FloatFormat& format) {
  const std::uint32_t fraction = code & ((1U << format.fraction()) - 1U);
  const std::uint32_t exponent = (code >> format.fraction()) & ((1U << format.exponent) - 1U);
  const float sign = (code >> (format.bits - 1)) != 0 ? -1.0F : 1.0F;
  if (exponent == (1U << format.exponent) - 1U) {
    return sign * (fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
  }
  const double size = exponent == 0 ? fraction : fraction + std::ldexp(1.0, format.fraction());
  const int scale = std::max(static_cast<int>(exponent), 1) - format.bias() - format.fraction();
  return sign * static_cast<float>(std::ldexp(size, scale));
}

TEST_CASE("narrow floats of any bits are as arithmetic has them", "[compression]") {
  std::mt19937 random(3);
  for (const FloatFormat& format : {FloatFormat{16, 5}, {16, 8}, {16, 6}, {8, 4}, {8, 5}, {8, 2}, {32, 8}}) {
    INFO(format.bits << " bits, " << format.exponent << " of the exponent");
    std::size_t other = 0;
    for (int k = 0; k < 200'000; ++k) {
      // A third each: any bits, numbers that the format has, and what lies near the middle between two of them.
      const std::uint32_t code = static_cast<std::uint32_t>(random()) >> (32 - format.bits);
      float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (k % 3 != 0) x = widened_by_arithmetic(code, format);
      const float next = k % 3 == 2 ? widened_by_arithmetic(code + 1, format) : x;
      if (next != x && std::isfinite(next) && std::isfinite(x)) {
        x += (next - x) / 2;
        if (k % 2 == 0) x = std::nextafter(x, random() % 2 == 0 ? next : 0.0F);
      }
      other += plain::narrowed(x, format) == narrowed_by_arithmetic(x, format) ? 0 : 1;
      const float wide = plain::widened(code, format), expected = widened_by_arithmetic(code, format);
      const bool is_same = std::isnan(expected)
                               ? std::isnan(wide)
                               : std::bit_cast<std::uint32_t>(wide) == std::bit_cast<std::uint32_t>(expected);
      other += is_same ? 0 : 1;
    }
    CHECK(other == 0);
  }
}

TEST_CASE("groups are filled up with zeros, each sample's for itself, and means stand for their values",
          "[compression]") {
  const std::vector<float> x{1,  3,  5,  7, 9,  //
                             -4, -2, -2, 0, 6};
  const PaddedSizes sizes{2, 5, 4, 2, 8, true, false};  // numbers 2, 6, 9 and -3, -1, 6: and a zero each
  CHECK(sizes.groups() == 1);
  CHECK(sizes.packed_bytes() == 8);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(sizes.bytes_of_scales())), packed(8);
  CHECK(scales.size() == 16);
  plain::quantize_padded(x.data(), sizes, Rounding::nearest, 0, scales.data(), packed.data());
  CHECK(packed == std::vector<std::uint8_t>{57, 170, 255, 0, 0, 57, 255, 85});  // of 9 / 255 above 0 and above -3
  std::vector<float> back(10);
  plain::dequantize_padded(packed.data(), scales.data(), sizes, back.data());
  const std::vector<float> means{2, 2, 6, 6, 9, -3, -3, -1, -1, 6};
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(back[i] - means[i]) <= 0.5F * 9 / 255 + 1e-5F);
  const PaddedSizes narrow{2, 5, 4, 2, 8, true, true};
  plain::quantize_padded(x.data(), narrow, Rounding::nearest, 0, scales.data(), packed.data());
  CHECK(packed[2] == 255);
  plain::dequantize_padded(packed.data(), scales.data(), narrow, back.data());
  // 9 / 255 in bf16 is 145 x 2^-12
  CHECK(back[4] == 255 * 145 * std::ldexp(1.0F, -12));
}

TEST_CASE("the steps of GELU's derivative ascend, come nearer with each bit, and are where the value lies",
          "[compression]") {
  double before = 1e9;
  for (const int bits : {1, 2, 3, 4}) {
    const DerivativeSteps steps = plain::gelu_steps(bits);
    const std::size_t count = std::size_t{1} << bits;
    REQUIRE(steps.levels.size() == count);
    REQUIRE(steps.bounds.size() == count - 1);
    CHECK(std::ranges::is_sorted(steps.bounds));
    const std::int64_t n = 1001;
    std::vector<float> x(n), dy(n, 1), dx(n);
    for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = 0.008F * static_cast<float>(i) - 4;
    std::vector<std::uint8_t> packed(static_cast<std::size_t>((n * bits + 7) / 8));
    plain::steps_of(x.data(), n, bits, steps, packed.data());
    plain::stepped_gradient(packed.data(), bits, steps, dy.data(), n, dx.data());
    double distance = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::size_t step = 0;
      while (step < steps.bounds.size() && steps.bounds[step] <= x[i]) ++step;
      CHECK(dx[i] == steps.levels[step]);
      distance += std::pow(dx[i] - gelu_slope(x[i]), 2) / static_cast<double>(n);
    }
    CHECK(distance < 0.5 * before);
    before = distance;
  }
  // With one bit: below and above 0, whose slopes between -4 and 4 have means 0 and 1, as GELU rises by 0 and 4.
  const DerivativeSteps one = plain::gelu_steps(1);
  CHECK(one.levels[0] == Approx(0).margin(0.02));
  CHECK(one.levels[1] == Approx(1).margin(0.02));
  CHECK(one.bounds[0] == Approx(0).margin(0.1));
}

TEST_CASE("compressed rows by hand: places in a byte, where each row begins, and -0 stays", "[compression]") {
  std::vector<float> x(600, 0);
  x[3] = 5;
  x[255] = -0.0F;
  x[599] = 7;
  std::vector<float> values(4, -1), back(600, 9);
  std::vector<std::int32_t> first(4);
  std::vector<std::uint8_t> places(4);
  CHECK(plain::compress_rows(x.data(), 600, 4, values.data(), first.data(), places.data()) == 3);
  CHECK(first == std::vector<std::int32_t>{0, 2, 2, 3});
  CHECK(places == std::vector<std::uint8_t>{3, 255, 599 - 512, 0});
  CHECK(values == std::vector<float>{5, -0.0F, 7, -1});
  plain::expand_rows(values.data(), first.data(), places.data(), 600, back.data());
  CHECK(back == x);
  CHECK(std::signbit(back[255]));
  CHECK(plain::compress_rows(x.data(), 600, 1, values.data(), first.data(), places.data()) == 3);
}

TEST_CASE("half of the sampled rows are the largest, the others are scaled by their chances", "[compression]") {
  const std::vector<float> x{3, 0, 0, 1, 0, 5, 1, 0};  // norms 3, 1, 5, 1
  std::vector<float> norms(4), values(6);
  std::vector<std::int64_t> numbers(3);
  plain::sample_rows(x.data(), {4, 2, 3}, 0, norms.data(), numbers.data(), values.data());
  CHECK(numbers[0] == 0);
  CHECK(numbers[1] == 2);
  CHECK((numbers[2] == 1 || numbers[2] == 3));  // one of two, either with a chance of a half: twice its value
  CHECK(values[4] + values[5] == 2);
  CHECK(std::vector<float>(values.begin(), values.begin() + 4) == std::vector<float>{3, 0, 0, 5});
  const std::vector<float> dy{1, 2, 4, 8};
  std::vector<float> product(2);
  plain::sampled_product(numbers.data(), values.data(), {4, 2, 3}, dy.data(), 2, 1, product.data());
  const float drawn = 2 * dy[static_cast<std::size_t>(numbers[2])];
  CHECK(product == (numbers[2] == 1 ? std::vector<float>{3, 20 + drawn} : std::vector<float>{3 + drawn, 20}));
}

TEST_CASE("over many matrices the sampled sum is the sum over all rows", "[compression]") {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  const SampleSizes sizes{40, 3, 12};
  double error = 0, all = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<float> x(120), values(36), norms(40), dy(40, 1), sampled(3), full(3, 0);
    std::vector<std::int64_t> numbers(12);
    for (float& value : x) value = 1 + normal(generator);
    plain::sample_rows(x.data(), sizes, 0, norms.data(), numbers.data(), values.data());
    plain::sampled_product(numbers.data(), values.data(), sizes, dy.data(), 3, 1, sampled.data());
    for (std::size_t i = 0; i < x.size(); ++i) full[i % 3] += x[i];
    for (std::size_t c = 0; c < 3; ++c) error += sampled[c] - full[c], all += full[c];
  }
  CHECK(std::abs(error) < 0.02 * all);
}

TEST_CASE("what steps of a derivative and sampled rows lose of white noise is what is predicted", "[compression]") {
  std::mt19937 generator(11);
  std::normal_distribution<float> normal;
  const auto noise = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(generator);
    return values;
  };
  const auto lost = [](const std::vector<float>& made, const std::vector<float>& exact) {
    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      wrong += std::pow(made[i] - exact[i], 2);
      all += std::pow(exact[i], 2);
    }
    return std::sqrt(wrong / all);
  };
  const std::vector<float> x = noise(200'000), dy = noise(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  for (const int bits : {1, 2, 3, 4}) {
    std::vector<std::uint8_t> packed(x.size() * static_cast<std::size_t>(bits) / 8 + 1);
    std::vector<float> made(x.size()), exact(x.size());
    const DerivativeSteps steps = plain::gelu_steps(bits);
    plain::steps_of(x.data(), n, bits, steps, packed.data());
    plain::stepped_gradient(packed.data(), bits, steps, dy.data(), n, made.data());
    for (std::size_t i = 0; i < x.size(); ++i) exact[i] = dy[i] * gelu_slope(x[i]);
    const Codec codec{.kind = CodecKind::step, .bits = static_cast<std::uint32_t>(bits)};
    CHECK(lost(made, exact) == Approx(codec_error(codec, Noise::normal)).epsilon(0.03));
  }
  for (const std::int64_t kept : {60, 200, 360}) {
    const SampleSizes sizes{400, 128, kept};
    const std::vector<float> rows = noise(400 * 128), gradient = noise(400 * 16);
    std::vector<float> norms(400), values(static_cast<std::size_t>(kept) * 128), made(128 * 16), exact(128 * 16, 0);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(kept));
    plain::sample_rows(rows.data(), sizes, 0, norms.data(), numbers.data(), values.data());
    plain::sampled_product(numbers.data(), values.data(), sizes, gradient.data(), 128, 16, made.data());
    for (std::size_t r = 0; r < 400; ++r) {
      for (std::size_t i = 0; i < 128; ++i) {
        for (std::size_t o = 0; o < 16; ++o) exact[i * 16 + o] += rows[r * 128 + i] * gradient[r * 16 + o];
      }
    }
    const Codec codec{.kind = CodecKind::rows, .keep = static_cast<double>(kept) / 400};
    CHECK(lost(made, exact) == Approx(codec_error(codec, Noise::normal)).epsilon(0.15));
  }
}

}  // namespace
}  // namespace plimsoll
