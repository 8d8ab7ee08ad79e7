#include "validate/reference/compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace plimsoll {

std::uint64_t seed_for(std::uint64_t run, const float* x, std::int64_t n) {
  std::uint64_t seed = 1469598103934665603ULL;  // FNV-1a by four bytes, whose high bits are mixed down
  const auto add = [&seed](std::uint64_t bits) {
    seed = (seed ^ bits) * 1099511628211ULL;
    seed ^= seed >> 32U;
  };
  add(run);
  for (std::int64_t i = 0; i < n; ++i) add(std::bit_cast<std::uint32_t>(x[i]));
  return seed;
}

}  // namespace plimsoll

namespace plimsoll::plain {
namespace {

/// One value for each block, in the order in which they lie.
template <class Value>
void of_blocks(const BlockSizes& s, float* values, const Value& value) {
  std::int64_t next = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < s.rows(); ++i) {
      for (std::int64_t j = 0; j < s.columns(); ++j) {
        for (std::int64_t c = 0; c < s.channels; ++c) values[next++] = value(n, i, j, c);
      }
    }
  }
}

/// Calls `visit` with every value of a block.
template <class Visit>
void in_block(const float* x, const BlockSizes& s, std::int64_t n, std::int64_t i, std::int64_t j, std::int64_t c,
              const Visit& visit) {
  const std::int64_t bottom = std::min((i + 1) * s.block_height(), s.height);
  const std::int64_t right = std::min((j + 1) * s.block, s.width);
  for (std::int64_t h = i * s.block_height(); h < bottom; ++h) {
    for (std::int64_t w = j * s.block; w < right; ++w) visit(x[((n * s.height + h) * s.width + w) * s.channels + c]);
  }
}

float block_maximum(const float* x, const BlockSizes& s, std::int64_t n, std::int64_t i, std::int64_t j,
                    std::int64_t c) {
  float largest = -std::numeric_limits<float>::infinity();
  in_block(x, s, n, i, j, c, [&](float value) { largest = std::max(largest, value); });
  return largest;
}

}  // namespace

void block_means(const float* x, const BlockSizes& s, float* means) {
  of_blocks(s, means, [&](auto n, auto i, auto j, auto c) { return block_mean(x, s, n, i, j, c); });
}

void block_maxima(const float* x, const BlockSizes& s, float* maxima) {
  of_blocks(s, maxima, [&](auto n, auto i, auto j, auto c) { return block_maximum(x, s, n, i, j, c); });
}

void block_soft_means(const float* x, const BlockSizes& s, float* means) {
  of_blocks(s, means, [&](auto n, auto i, auto j, auto c) {
    const float largest = block_maximum(x, s, n, i, j, c);  // which the exponentials are relative to
    float weights = 0, sum = 0;
    in_block(x, s, n, i, j, c, [&](float value) {
      const float weight = std::exp(value - largest);
      weights += weight;
      sum += weight * value;
    });
    return sum / weights;
  });
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

void product_of_means(const float* means, const BlockSizes& s, const float* dy, std::int64_t outputs, float* product) {
  std::fill_n(product, s.channels * outputs, 0.0F);
  BlockSizes of_gradient = s;
  of_gradient.channels = outputs;
  std::vector<float> gradient(static_cast<std::size_t>(outputs));  // of a block
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < s.rows(); ++i) {
      for (std::int64_t j = 0; j < s.columns(); ++j) {
        for (std::int64_t o = 0; o < outputs; ++o) {
          gradient[static_cast<std::size_t>(o)] = block_mean(dy, of_gradient, n, i, j, o);
        }
        const auto pixels = static_cast<float>(s.pixels(i, j));
        for (std::int64_t c = 0; c < s.channels; ++c) {
          const float sum = pixels * *means++;
          for (std::int64_t o = 0; o < outputs; ++o) {
            product[c * outputs + o] += sum * gradient[static_cast<std::size_t>(o)];
          }
        }
      }
    }
  }
}

void quantize(const float* x, const QuantizeSizes& s, Rounding rounding, std::uint64_t seed, float* scales,
              std::uint8_t* packed) {
  std::fill_n(packed, s.packed_bytes(), std::uint8_t{0});
  for (std::int64_t g = 0; g < s.groups(); ++g) {
    const std::int64_t first = g * s.group, last = std::min(first + s.group, s.numbers);
    float least = x[first], largest = x[first];
    for (std::int64_t i = first + 1; i < last; ++i) {
      least = x[i] < least ? x[i] : least;
      largest = largest < x[i] ? x[i] : largest;
    }
    scales[2 * g] = least;
    scales[2 * g + 1] = (largest - least) / static_cast<float>(s.levels());
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
