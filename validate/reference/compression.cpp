#include "validate/reference/compression.h"

#include <algorithm>

namespace plimsoll::plain {

void block_means(const float* x, const BlockSizes& s, float* means) {
  std::int64_t next = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < s.rows(); ++i) {
      for (std::int64_t j = 0; j < s.columns(); ++j) {
        for (std::int64_t c = 0; c < s.channels; ++c) means[next++] = block_mean(x, s, n, i, j, c);
      }
    }
  }
}

void expand_blocks(const float* means, const BlockSizes& s, float* x) {
  std::int64_t next = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t h = 0; h < s.height; ++h) {
      for (std::int64_t w = 0; w < s.width; ++w) {
        const std::int64_t block = (n * s.rows() + h / s.block_height()) * s.columns() + w / s.block;
        for (std::int64_t c = 0; c < s.channels; ++c) x[next++] = means[block * s.channels + c];
      }
    }
  }
}

void quantize(const float* x, const QuantizeSizes& s, Rounding rounding, std::uint64_t seed, float* scales,
              std::uint8_t* packed) {
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  for (std::int64_t g = 0; g < s.groups(); ++g) {
    const std::int64_t first = g * s.group, last = std::min(first + s.group, s.numbers);
    const auto [least, largest] = std::minmax_element(x + first, x + last);
    scales[2 * g] = *least;
    scales[2 * g + 1] = (*largest - *least) / static_cast<float>(s.levels());
    for (std::int64_t i = first; i < last; ++i) {
      const float offset = rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(i));
      const std::uint32_t level = level_of(x[i], scales[2 * g], scales[2 * g + 1], s.levels(), offset);
      std::uint8_t& byte = packed[i * s.bits / 8];
      byte = static_cast<std::uint8_t>(byte | level << (i * s.bits % 8));
    }
  }
}

void dequantize(const std::uint8_t* packed, const float* scales, const QuantizeSizes& s, float* x) {
  for (std::int64_t i = 0; i < s.numbers; ++i) {
    const std::uint32_t level = (static_cast<std::uint32_t>(packed[i * s.bits / 8]) >> (i * s.bits % 8)) &
                                static_cast<std::uint32_t>(s.levels());
    const std::int64_t g = i / s.group;
    x[i] = scales[2 * g] + static_cast<float>(level) * scales[2 * g + 1];
  }
}

}  // namespace plimsoll::plain
