#include "validate/reference/padded_groups.h"

#include <algorithm>
#include <cstring>

#include "validate/reference/few_bits.h"

namespace plimsoll::plain {
namespace {

constexpr FloatFormat brain{16, 8};

/// Number i of a sample; those behind the last are the zeros it is filled up with.
float number_at(const float* sample, const PaddedSizes& s, std::int64_t i) {
  const std::int64_t first = i * s.averaged, last = std::min(first + s.averaged, s.values);
  if (first >= last) return 0;
  float sum = 0;
  for (std::int64_t v = first; v < last; ++v) sum += sample[v];
  return sum / static_cast<float>(last - first);
}

void write_scale(float value, bool narrow_scales, std::uint8_t* to) {
  if (narrow_scales) {
    narrow(&value, 1, brain, to);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

float read_scale(const std::uint8_t* from, bool narrow_scales) {
  float value = 0;
  if (narrow_scales) {
    widen(from, 1, brain, &value);
  } else {
    std::memcpy(&value, from, sizeof value);
  }
  return value;
}

}  // namespace

void quantize_padded(const float* x, const PaddedSizes& s, Rounding rounding, std::uint64_t seed, std::uint8_t* scales,
                     std::uint8_t* packed) {
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  const std::int64_t bytes = s.narrow ? 2 : 4;
  const int levels = (1 << s.bits) - 1;
  for (std::int64_t n = 0; n < s.samples; ++n) {
    const float* sample = x + n * s.values;
    for (std::int64_t g = 0; g < s.groups(); ++g) {
      const std::int64_t first = g * s.group, last = std::min(first + s.group, s.written());
      float least = number_at(sample, s, first), largest = least;
      for (std::int64_t i = first; i < last; ++i) {
        least = std::min(least, number_at(sample, s, i));
        largest = std::max(largest, number_at(sample, s, i));
      }
      const float step = (largest - least) / static_cast<float>(levels);
      std::uint8_t* scale = scales + (n * s.groups() + g) * 2 * bytes;
      write_scale(least, s.narrow, scale);
      write_scale(step, s.narrow, scale + bytes);
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t place = n * s.written() + i, bit = place * s.bits;
        const float offset = rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(place));
        const std::uint32_t level = level_of(number_at(sample, s, i), least, step, levels, offset);
        packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] | level << (bit % 8));
      }
    }
  }
}

void dequantize_padded(const std::uint8_t* packed, const std::uint8_t* scales, const PaddedSizes& s, float* x) {
  const std::int64_t bytes = s.narrow ? 2 : 4;
  const std::uint32_t all = (1U << s.bits) - 1U;
  for (std::int64_t n = 0; n < s.samples; ++n) {
    for (std::int64_t v = 0; v < s.values; ++v) {
      const std::int64_t i = v / s.averaged, bit = (n * s.written() + i) * s.bits;
      const std::uint8_t* scale = scales + (n * s.groups() + i / s.group) * 2 * bytes;
      const std::uint32_t level = (static_cast<std::uint32_t>(packed[bit / 8]) >> (bit % 8)) & all;
      x[n * s.values + v] =
          read_scale(scale, s.narrow) + static_cast<float>(level) * read_scale(scale + bytes, s.narrow);
    }
  }
}

}  // namespace plimsoll::plain
