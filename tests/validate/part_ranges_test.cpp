// Quantization by ranges of parts and by a fixed range: by hand.

#include "validate/reference/part_ranges.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "validate/reference/bit_stream.h"

namespace plimsoll {
namespace {

using Bytes8 = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

TEST_CASE("numbers of any few bits lie in a row, over the borders of bytes", "[compression]") {
  for (const int bits : {1, 3, 5, 7, 8, 11, 16}) {
    INFO(bits);
    constexpr std::int64_t count = 23;
    Bytes8 packed(static_cast<std::size_t>((count * bits + 7) / 8));
    const auto number = [&](std::int64_t i) { return static_cast<std::uint32_t>(i * 40503 + 5) % (1U << bits); };
    BitWriter writer(packed.data());
    for (std::int64_t i = 0; i < count; ++i) writer.put(number(i), bits);
    writer.end();
    for (std::int64_t i = 0; i < count; ++i) CHECK(bits_at(packed.data(), i * bits, bits) == number(i));
  }
  Bytes8 packed(3, 0xFF);
  BitWriter writer(packed.data());
  writer.put(0, 5);
  writer.put(0b10011, 5);
  writer.end();
  CHECK(packed == Bytes8{0b01100000, 0b10, 0xFF});
}

TEST_CASE("which part a value is of, by its place alone", "[compression]") {
  std::mt19937 random(7);
  const auto below = [&](std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random); };
  for (int k = 0; k < 300; ++k) {
    const PartSizes s{1 + below(4), 1 + below(7), 1 + below(5), 1 + below(9), static_cast<int>(2 + below(7))};
    INFO(s.outer << " x " << s.channels << " x " << s.inner << " in " << s.parts);
    Floats x(static_cast<std::size_t>(s.numbers()));
    for (float& each : x) each = static_cast<float>(below(2001) - 1000) / 100;
    const auto part_of = [&](std::int64_t i) { return i / s.inner % s.channels * s.parts / s.channels; };
    std::vector<Floats> of_part(static_cast<std::size_t>(s.parts));
    for (std::int64_t i = 0; i < s.numbers(); ++i) of_part[part_of(i)].push_back(x[i]);
    Bytes8 packed(static_cast<std::size_t>(s.packed_bytes())), mask(x.size() / 8 + 1);
    Floats scales(static_cast<std::size_t>(2 * s.parts)), largest(of_part.size()), back(x.size());
    plain::quantize_parts(x.data(), s, Rounding::nearest, 0, scales.data(), packed.data());
    plain::dequantize_parts(packed.data(), scales.data(), s, back.data());
    for (std::size_t p = 0; p < of_part.size(); ++p) {
      CHECK(scales[2 * p] == (of_part[p].empty() ? 0 : std::ranges::min(of_part[p])));
    }
    const auto is_near = [&](std::int64_t i, double step) { return std::abs(back[i] - x[i]) <= step / 2 + 1e-4; };
    for (std::int64_t i = 0; i < s.numbers(); ++i) CHECK(is_near(i, scales[2 * part_of(i) + 1]));
    plain::quantize_sizes(x.data(), s, Rounding::nearest, 0, largest.data(), packed.data());
    plain::dequantize_sizes(packed.data(), largest.data(), s, back.data());
    for (std::size_t p = 0; p < of_part.size(); ++p) {
      float most = 0;
      for (const float each : of_part[p]) most = std::max(most, std::abs(each));
      CHECK(largest[p] == most);
    }
    for (std::int64_t i = 0; i < s.numbers(); ++i) {
      CHECK(is_near(i, largest[part_of(i)] / static_cast<float>((1 << (s.bits - 1)) - 1)));
    }
    const auto above = std::ranges::count_if(x, [](float each) { return each > 0; });
    CHECK(plain::quantize_above_zero(x.data(), s, s.numbers(), Rounding::nearest, 0, largest.data(), mask.data(),
                                     packed.data()) == above);
    plain::dequantize_above_zero(packed.data(), largest.data(), mask.data(), s, back.data());
    for (std::int64_t i = 0; i < s.numbers(); ++i) {
      const double step = largest[part_of(i)] / static_cast<float>((1 << s.bits) - 1);
      CHECK((x[i] > 0 ? is_near(i, step) : back[i] == 0));
    }
  }
}

TEST_CASE("values of a part share their least and their step, wherever they lie", "[compression]") {
  const Floats x{0, 10, 6, 70,   // channels 0 1 2 3, of which two each are a part
                 2, 8,  1, 40};  // the least of the parts are 0 and 1, the largest 10 and 70
  const PartSizes last{2, 4, 1, 2, 8};
  Floats scales(4), back(8);
  Bytes8 packed(8);
  plain::quantize_parts(x.data(), last, Rounding::nearest, 0, scales.data(), packed.data());
  CHECK(scales == Floats{0, 10 / 255.0F, 1, 69 / 255.0F});
  CHECK(packed == Bytes8{0, 255, 18, 255, 51, 204, 0, 144});  // 5 x 255 / 69 = 18.5 nearly, 2 x 25.5, 39 x 3.7
  plain::dequantize_parts(packed.data(), scales.data(), last, back.data());
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(back[i] == Approx(x[i]).margin(69 / 255.0 / 2 + 1e-5));
  const PartSizes second{1, 2, 4, 2, 8};  // a channel is a row here
  plain::quantize_parts(x.data(), second, Rounding::nearest, 0, scales.data(), packed.data());
  CHECK(scales == Floats{0, 70 / 255.0F, 1, 39 / 255.0F});
  const PartSizes more_than_channels{8, 1, 1, 3, 8};  // all are of the first part
  Floats of_three(6);
  plain::quantize_parts(x.data(), more_than_channels, Rounding::nearest, 0, of_three.data(), packed.data());
  CHECK(of_three == Floats{0, 70 / 255.0F, 0, 0, 0, 0});
}

TEST_CASE("sizes by the largest of a part, with signs; and only those above 0, behind a mask", "[compression]") {
  const Floats x{-7, 0, 4, -0.0F, 2, 7};
  const PartSizes s{3, 2, 1, 2, 4};  // parts -7 4 2 and 0 -0 7, sizes up to 7
  Floats largest(2), back(6);
  Bytes8 packed(3), mask(1);
  plain::quantize_sizes(x.data(), s, Rounding::nearest, 0, largest.data(), packed.data());
  CHECK(largest == Floats{7, 7});
  CHECK(packed == Bytes8{0x0F, 0x84, 0x72});
  plain::dequantize_sizes(packed.data(), largest.data(), s, back.data());
  CHECK(back == x);

  const Floats rectified{0, 15, 3, 0, 5, 1};
  const PartSizes wide{6, 1, 1, 1, 4};
  CHECK(plain::quantize_above_zero(rectified.data(), wide, 4, Rounding::nearest, 0, largest.data(), mask.data(),
                                   packed.data()) == 4);
  CHECK(mask == Bytes8{0b110110});
  CHECK(packed[0] == 0x3F);
  CHECK(packed[1] == 0x15);
  plain::dequantize_above_zero(packed.data(), largest.data(), mask.data(), wide, back.data());
  CHECK(back == rectified);
  Bytes8 few(1);
  CHECK(plain::quantize_above_zero(rectified.data(), wide, 2, Rounding::nearest, 0, largest.data(), mask.data(),
                                   few.data()) == 4);
  CHECK(few[0] == 0x3F);
}

TEST_CASE("in a fixed range half of the intervals are above 0, and the outer ones have no end", "[compression]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats x{0, 1e-9F, -1e-9F, 0.75F, 2.9F, 100, -100, nan}, dy{1, 2, 3, 4, 5, -6, 7, 8};
  Bytes8 packed(2);
  plain::quantize_fixed(x.data(), 8, 2, packed.data());  // -3 to -1.5, to 0, to 1.5, to 3: numbers 0 1 2 3
  CHECK(packed == Bytes8{0b10011001, 0b01001111});
  Floats back(8), dx(8);
  plain::dequantize_fixed(packed.data(), 8, 2, false, back.data());
  CHECK(back == Floats{-0.75F, 0.75F, -0.75F, 0.75F, 2.25F, 2.25F, -2.25F, -0.75F});
  plain::dequantize_fixed(packed.data(), 8, 2, true, back.data());
  CHECK(back == Floats{0, 0.75F, 0, 0.75F, 2.25F, 2.25F, 0, 0});
  plain::fixed_relu_gradient(packed.data(), 2, dy.data(), 8, dx.data());
  CHECK(dx == Floats{0, 2, 0, 4, 5, -6, 0, 0});
}

}  // namespace
}  // namespace plimsoll
