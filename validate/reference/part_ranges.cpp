#include "validate/reference/part_ranges.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "validate/reference/bit_stream.h"
#include "validate/reference/compression.h"

namespace plimsoll::plain {
namespace {

constexpr float fixed_range = 3;  // deviations to each side, of values that a batch norm has made

float offset_of(Rounding rounding, std::uint64_t seed, std::int64_t i) {
  return rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(i));
}

/// Of the values of a part, the largest without signs.
void largest_sizes(const float* x, const PartSizes& s, float* largest) {
  std::fill_n(largest, s.parts, 0.0F);
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    float& most = largest[s.part_of(i)];
    most = most < std::fabs(x[i]) ? std::fabs(x[i]) : most;
  }
}

}  // namespace

void quantize_parts(const float* x, const PartSizes& s, Rounding rounding, std::uint64_t seed, float* scales,
                    std::uint8_t* packed) {
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  std::fill_n(scales, 2 * s.parts, 0.0F);  // least and, until the last has been seen, largest
  std::vector<bool> is_seen(static_cast<std::size_t>(s.parts));
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const std::int64_t part = s.part_of(i);
    float &least = scales[2 * part], &largest = scales[2 * part + 1];
    const bool is_first = !is_seen[static_cast<std::size_t>(part)];
    is_seen[static_cast<std::size_t>(part)] = true;
    least = is_first || x[i] < least ? x[i] : least;
    largest = is_first || largest < x[i] ? x[i] : largest;
  }
  const int levels = (1 << s.bits) - 1;
  for (std::int64_t part = 0; part < s.parts; ++part) {
    scales[2 * part + 1] = (scales[2 * part + 1] - scales[2 * part]) / static_cast<float>(levels);
  }
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const float* scale = scales + 2 * s.part_of(i);
    put_bits(packed, i * s.bits, level_of(x[i], scale[0], scale[1], levels, offset_of(rounding, seed, i)));
  }
}

void dequantize_parts(const std::uint8_t* packed, const float* scales, const PartSizes& s, float* x) {
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const float* scale = scales + 2 * s.part_of(i);
    x[i] = scale[0] + static_cast<float>(bits_at(packed, i * s.bits, s.bits)) * scale[1];
  }
}

void quantize_sizes(const float* x, const PartSizes& s, Rounding rounding, std::uint64_t seed, float* largest,
                    std::uint8_t* packed) {
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  largest_sizes(x, s, largest);
  const int levels = (1 << (s.bits - 1)) - 1;
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const float step = largest[s.part_of(i)] / static_cast<float>(levels);
    const std::uint32_t size = level_of(std::fabs(x[i]), 0, step, levels, offset_of(rounding, seed, i));
    put_bits(packed, i * s.bits, size | (std::signbit(x[i]) ? 1U << (s.bits - 1) : 0U));
  }
}

void dequantize_sizes(const std::uint8_t* packed, const float* largest, const PartSizes& s, float* x) {
  const int levels = (1 << (s.bits - 1)) - 1;
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const std::uint32_t number = bits_at(packed, i * s.bits, s.bits);
    const float step = largest[s.part_of(i)] / static_cast<float>(levels);
    const float size = static_cast<float>(number & static_cast<std::uint32_t>(levels)) * step;
    x[i] = number >> (s.bits - 1) != 0 ? -size : size;
  }
}

std::int64_t quantize_above_zero(const float* x, const PartSizes& s, std::int64_t reserved, Rounding rounding,
                                 std::uint64_t seed, float* largest, std::uint8_t* mask, std::uint8_t* packed) {
  std::fill_n(mask, (s.numbers() + 7) / 8, std::uint8_t{0});
  std::fill_n(packed, (reserved * s.bits + 7) / 8, std::uint8_t{0});
  largest_sizes(x, s, largest);
  const int levels = (1 << s.bits) - 1;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    if (!(x[i] > 0)) continue;
    put_bits(mask, i, 1);
    const float step = largest[s.part_of(i)] / static_cast<float>(levels);
    if (count < reserved) {
      put_bits(packed, count * s.bits, level_of(x[i], 0, step, levels, offset_of(rounding, seed, i)));
    }
    ++count;
  }
  return count;
}

void dequantize_above_zero(const std::uint8_t* packed, const float* largest, const std::uint8_t* mask,
                           const PartSizes& s, float* x) {
  const int levels = (1 << s.bits) - 1;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < s.numbers(); ++i) {
    const bool is_there = bits_at(mask, i, 1) != 0;
    const float step = largest[s.part_of(i)] / static_cast<float>(levels);
    x[i] = is_there ? static_cast<float>(bits_at(packed, count++ * s.bits, s.bits)) * step : 0.0F;
  }
}

void quantize_fixed(const float* x, std::int64_t numbers, int bits, std::uint8_t* packed) {
  std::fill_n(packed, (numbers * bits + 7) / 8, std::uint8_t{0});
  const int half = 1 << (bits - 1);
  const float step = fixed_range / static_cast<float>(half);
  for (std::int64_t i = 0; i < numbers; ++i) {
    const std::uint32_t beyond = level_of(std::fabs(x[i]), 0, step, half - 1, 0);  // intervals between it and 0
    const auto first = static_cast<std::uint32_t>(half);
    put_bits(packed, i * bits, x[i] > 0 ? first + beyond : first - 1 - beyond);
  }
}

void dequantize_fixed(const std::uint8_t* packed, std::int64_t numbers, int bits, bool is_rectified, float* x) {
  const int half = 1 << (bits - 1);
  const float step = fixed_range / static_cast<float>(half);
  for (std::int64_t i = 0; i < numbers; ++i) {
    const float number = static_cast<float>(static_cast<int>(bits_at(packed, i * bits, bits)) - half);
    x[i] = is_rectified && number < 0 ? 0.0F : (number + 0.5F) * step;
  }
}

void fixed_relu_gradient(const std::uint8_t* packed, int bits, const float* dy, std::int64_t numbers, float* dx) {
  const std::uint32_t half = 1U << (bits - 1);
  for (std::int64_t i = 0; i < numbers; ++i) {
    dx[i] = bits_at(packed, i * bits, bits) >= half ? dy[i] : 0.0F * dy[i];
  }
}

}  // namespace plimsoll::plain
