#include "validate/reference/padded_groups.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "validate/reference/few_bits.h"

namespace plimsoll::plain {
namespace {

constexpr FloatFormat brain{16, 8};

/// Number i of a sample; those behind the last are the zeros it is filled up with.
float number_at(const float* sample, const PaddedSizes& s, std::int64_t i) {
  const std::int64_t first = i * s.averaged, last = std::min(first + s.averaged, s.values);
  if (first >= last) return 0;
  float sum = 0;
  if (last - first == 1) return sum + sample[first];
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

void quantize_padded(const float* x, const PaddedSizes& sizes, Rounding rounding, std::uint64_t seed,
                     std::uint8_t* scales, std::uint8_t* packed) {
  const PaddedSizes s = sizes;  // which no byte that is written can change, for a compiler
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  const std::int64_t bytes = s.narrow ? 2 : 4;
  const std::int64_t bits = s.bits, written = s.written();
  const int levels = (1 << s.bits) - 1;
  std::vector<float> group(static_cast<std::size_t>(s.group));
  float* const numbers = group.data();
  for (std::int64_t n = 0; n < s.samples; ++n) {
    const float* sample = x + n * s.values;
    for (std::int64_t g = 0; g < s.groups(); ++g) {
      const std::int64_t first = g * s.group, count = std::min(s.group, written - first);
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = number_at(sample, s, first + i);
      float least = numbers[0], largest = least;
      for (std::int64_t i = 0; i < count; ++i) {
        least = numbers[i] < least ? numbers[i] : least;
        largest = largest < numbers[i] ? numbers[i] : largest;
      }
      const float step = (largest - least) / static_cast<float>(levels);
      std::uint8_t* scale = scales + (n * s.groups() + g) * 2 * bytes;
      write_scale(least, s.narrow, scale);
      write_scale(step, s.narrow, scale + bytes);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t place = n * written + first + i, bit = place * bits;
        const float offset = rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(place));
        const std::uint32_t level = level_of(numbers[i], least, step, levels, offset);
        packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] | level << (bit % 8));
      }
    }
  }
}

void dequantize_padded(const std::uint8_t* packed, const std::uint8_t* scales, const PaddedSizes& s, float* x) {
  const std::int64_t bytes = s.narrow ? 2 : 4;
  const std::uint32_t all = (1U << s.bits) - 1U;
  for (std::int64_t n = 0; n < s.samples; ++n) {
    float* sample = x + n * s.values;
    for (std::int64_t g = 0; g < s.groups(); ++g) {
      const std::uint8_t* scale = scales + (n * s.groups() + g) * 2 * bytes;
      const float least = read_scale(scale, s.narrow), step = read_scale(scale + bytes, s.narrow);
      const std::int64_t first = g * s.group * s.averaged;
      const std::int64_t last = std::min(first + s.group * s.averaged, s.values);
      for (std::int64_t v = first; v < last; ++v) {
        const std::int64_t bit = (n * s.written() + v / s.averaged) * s.bits;
        const std::uint32_t level = (static_cast<std::uint32_t>(packed[bit / 8]) >> (bit % 8)) & all;
        sample[v] = least + static_cast<float>(level) * step;
      }
    }
  }
}

}  // namespace plimsoll::plain
