#include "validate/reference/part_ranges.h"

#include <algorithm>
#include <cmath>

#include "validate/reference/bit_stream.h"
#include "validate/reference/compression.h"

namespace plimsoll::plain {
namespace {

constexpr float fixed_range = 3;  // deviations to each side, of values that a batch norm has made

float offset_of(Rounding rounding, std::uint64_t seed, std::int64_t i) {
  return rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(i));
}

/// The rows of values that are of one part each, in the order in which they lie: each part's first one before its next.
/// Calls `visit` with the part and where its row begins and ends.
template <class Visit>
void for_each_row(const PartSizes& s, const Visit& visit) {
  const auto first_of = [&](std::int64_t part) { return (part * s.channels + s.parts - 1) / s.parts * s.inner; };
  for (std::int64_t o = 0; o < s.outer; ++o) {
    const std::int64_t begin = o * s.channels * s.inner;
    for (std::int64_t part = 0, first = 0; part < s.parts; ++part) {
      const std::int64_t last = first_of(part + 1);
      if (first < last) visit(part, begin + first, begin + last);
      first = last;
    }
  }
}

/// Of the values of a part, the largest without signs.
void largest_sizes(const float* x, const PartSizes& s, float* largest) {
  std::fill_n(largest, s.parts, 0.0F);
  for_each_row(s, [&](std::int64_t part, std::int64_t first, std::int64_t last) {
    float most = largest[part];
    for (std::int64_t i = first; i < last; ++i) most = most < std::fabs(x[i]) ? std::fabs(x[i]) : most;
    largest[part] = most;
  });
}

}  // namespace

void quantize_parts(const float* x, const PartSizes& s, Rounding rounding, std::uint64_t seed, float* scales,
                    std::uint8_t* packed) {
  std::fill_n(scales, 2 * s.parts, 0.0F);  // least and, until the last has been seen, largest
  for_each_row(s, [&](std::int64_t part, std::int64_t first, std::int64_t last) {
    const bool is_first = first < s.channels * s.inner;
    float least = is_first ? x[first] : scales[2 * part], largest = is_first ? x[first] : scales[2 * part + 1];
    for (std::int64_t i = first; i < last; ++i) {
      least = x[i] < least ? x[i] : least;
      largest = largest < x[i] ? x[i] : largest;
    }
    scales[2 * part] = least;
    scales[2 * part + 1] = largest;
  });
  const int levels = (1 << s.bits) - 1;
  for (std::int64_t part = 0; part < s.parts; ++part) {
    scales[2 * part + 1] = (scales[2 * part + 1] - scales[2 * part]) / static_cast<float>(levels);
  }
  BitWriter writer(packed);
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float least = scales[2 * part], step = scales[2 * part + 1];
    for (std::int64_t i = first; i < last; ++i) {
      writer.put(level_of(x[i], least, step, levels, offset_of(rounding, seed, i)), bits);
    }
  });
  writer.end();
}

void dequantize_parts(const std::uint8_t* packed, const float* scales, const PartSizes& s, float* x) {
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float least = scales[2 * part], step = scales[2 * part + 1];
    for (std::int64_t i = first; i < last; ++i) {
      x[i] = least + static_cast<float>(bits_at(packed, i * bits, bits)) * step;
    }
  });
}

void quantize_sizes(const float* x, const PartSizes& s, Rounding rounding, std::uint64_t seed, float* largest,
                    std::uint8_t* packed) {
  largest_sizes(x, s, largest);
  const int levels = (1 << (s.bits - 1)) - 1;
  BitWriter writer(packed);
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float step = largest[part] / static_cast<float>(levels);
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint32_t size = level_of(std::fabs(x[i]), 0, step, levels, offset_of(rounding, seed, i));
      writer.put(size | static_cast<std::uint32_t>(std::signbit(x[i])) << (bits - 1), bits);
    }
  });
  writer.end();
}

void dequantize_sizes(const std::uint8_t* packed, const float* largest, const PartSizes& s, float* x) {
  const int levels = (1 << (s.bits - 1)) - 1;
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float step = largest[part] / static_cast<float>(levels);
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint32_t number = bits_at(packed, i * bits, bits);
      const float size = static_cast<float>(number & static_cast<std::uint32_t>(levels)) * step;
      x[i] = chosen(number >> (bits - 1) != 0, -size, size);
    }
  });
}

std::int64_t quantize_above_zero(const float* x, const PartSizes& s, std::int64_t reserved, Rounding rounding,
                                 std::uint64_t seed, float* largest, std::uint8_t* mask, std::uint8_t* packed) {
  std::fill_n(packed, (reserved * s.bits + 7) / 8, std::uint8_t{0});
  largest_sizes(x, s, largest);
  const int levels = (1 << s.bits) - 1;
  std::int64_t count = 0;
  BitWriter signs(mask), writer(packed);
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float step = largest[part] / static_cast<float>(levels);
    for (std::int64_t i = first; i < last; ++i) {
      const auto is_there = static_cast<std::uint32_t>(x[i] > 0);
      signs.put(is_there, 1);
      const std::uint32_t level = level_of(std::fabs(x[i]), 0, step, levels, offset_of(rounding, seed, i));
      const std::uint32_t is_written = is_there & static_cast<std::uint32_t>(count < reserved);
      writer.put(level * is_written, bits * static_cast<int>(is_written));
      count += is_there;
    }
  });
  signs.end();
  writer.end();
  return count;
}

void dequantize_above_zero(const std::uint8_t* packed, const float* largest, const std::uint8_t* mask,
                           const PartSizes& s, float* x) {
  const int levels = (1 << s.bits) - 1;
  std::int64_t count = 0;
  for_each_row(s, [&, bits = s.bits](std::int64_t part, std::int64_t first, std::int64_t last) {
    const float step = largest[part] / static_cast<float>(levels);
    for (std::int64_t i = first; i < last; ++i) {
      count += bits_at(mask, i, 1);
      const std::int64_t place = std::max<std::int64_t>(count - 1, 0);  // where there is none, of the one before
      const float value = static_cast<float>(bits_at(packed, place * bits, bits)) * step;
      x[i] = chosen(bits_at(mask, i, 1) != 0, value, 0.0F);
    }
  });
}

void quantize_fixed(const float* x, std::int64_t numbers, int bits, std::uint8_t* packed) {
  const auto first = 1U << (bits - 1);  // of those above 0
  const float step = fixed_range / static_cast<float>(first);
  const auto most = static_cast<float>(first - 1);
  BitWriter writer(packed);
  for (std::int64_t i = 0; i < numbers; ++i) {
    const float intervals = std::fabs(x[i]) / step;  // between it and 0; of what is no number none
    const float level = chosen(intervals < most, intervals, chosen(intervals >= most, most, 0.0F));
    const auto beyond = static_cast<std::uint32_t>(level);
    writer.put(chosen(x[i] > 0, first + beyond, first - 1 - beyond), bits);
  }
  writer.end();
}

void dequantize_fixed(const std::uint8_t* packed, std::int64_t numbers, int bits, bool is_rectified, float* x) {
  const int half = 1 << (bits - 1);
  const float step = fixed_range / static_cast<float>(half);
  const float least = is_rectified ? 0.0F : -fixed_range;
  for (std::int64_t i = 0; i < numbers; ++i) {
    const auto number = static_cast<float>(static_cast<int>(bits_at(packed, i * bits, bits)) - half);
    const float middle = (number + 0.5F) * step;
    x[i] = middle < least ? least : middle;
  }
}

void fixed_relu_gradient(const std::uint8_t* packed, int bits, const float* dy, std::int64_t numbers, float* dx) {
  const std::uint32_t half = 1U << (bits - 1);
  for (std::int64_t i = 0; i < numbers; ++i) {
    dx[i] = chosen(bits_at(packed, i * bits, bits) >= half, dy[i], 0.0F * dy[i]);
  }
}

}  // namespace plimsoll::plain
