#pragma once
// Compression of activations in plain loops: block means, and quantization to a few bits in groups with a scale each.

#include <algorithm>
#include <cstdint>

#include "validate/reference/chance.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

/// Pictures with channels last, reduced by blocks of `block` x `block` pixels; those at the right and lower edge may be
/// smaller. One dimension: height 1, of which blocks are one pixel high.
struct BlockSizes {
  std::int64_t batch, height, width, channels, block;

  PLIMSOLL_ON_BOTH std::int64_t block_height() const { return height == 1 ? 1 : block; }
  PLIMSOLL_ON_BOTH std::int64_t rows() const { return (height + block_height() - 1) / block_height(); }
  PLIMSOLL_ON_BOTH std::int64_t columns() const { return (width + block - 1) / block; }
  /// Of block i, j.
  std::int64_t pixels(std::int64_t i, std::int64_t j) const {
    return std::min(block_height(), height - i * block_height()) * std::min(block, width - j * block);
  }
};

/// The mean of a block: `i`, `j` which one.
PLIMSOLL_ON_BOTH inline float block_mean(const float* x, const BlockSizes& s, std::int64_t n, std::int64_t i,
                                         std::int64_t j, std::int64_t c) {
  const std::int64_t top = i * s.block_height(), left = j * s.block;
  const std::int64_t bottom = top + s.block_height() < s.height ? top + s.block_height() : s.height;
  const std::int64_t right = left + s.block < s.width ? left + s.block : s.width;
  float sum = 0;
  for (std::int64_t h = top; h < bottom; ++h) {
    for (std::int64_t w = left; w < right; ++w) sum += x[((n * s.height + h) * s.width + w) * s.channels + c];
  }
  return sum / static_cast<float>((bottom - top) * (right - left));
}

/// `bits`: 1, 2, 4 or 8. Every `group` numbers share a least value and a step; group x bits is a multiple of 8, so that
/// groups begin at bytes. Numbers are packed from a byte's low bits up.
struct QuantizeSizes {
  std::int64_t numbers, group;
  int bits;

  PLIMSOLL_ON_BOTH std::int64_t groups() const { return (numbers + group - 1) / group; }
  PLIMSOLL_ON_BOTH std::int64_t packed_bytes() const { return (numbers * bits + 7) / 8; }
  PLIMSOLL_ON_BOTH int levels() const { return (1 << bits) - 1; }
};

/// Which of the levels 0 ... `levels` a number becomes; `offset` is 0.5 to the nearest one, a random number in [0, 1)
/// for a mean that is the number itself.
PLIMSOLL_ON_BOTH inline std::uint32_t level_of(float x, float least, float step, int levels, float offset) {
  if (!(step > 0)) return 0;
  // Without branches, so that it takes as long for all values. Numbers are not below 0 where they are cut to whole
  // ones.
  const float number = (x - least) / step + offset, most = static_cast<float>(levels);
  const float level = number > 0 ? number : 0;  // no number at all, too
  return static_cast<std::uint32_t>(level < most ? level : most);
}

namespace plain {

void block_means(const float* x, const BlockSizes&, float* means);
/// The largest value of every block.
void block_maxima(const float* x, const BlockSizes&, float* maxima);
/// The mean of every block, its values weighted by their exponentials.
void block_soft_means(const float* x, const BlockSizes&, float* means);
/// Every pixel of a block becomes its mean: the inverse of `block_means` on what is constant in each block.
void expand_blocks(const float* means, const BlockSizes&, float* x);
/// Of a convolution of single pixels, the gradient of its weight (channels x outputs) as if each pixel were the mean of
/// its block, from block means of x and the whole dy, of the same height and width with `outputs` channels: as means
/// are a projection, those of dy tell as much.
void product_of_means(const float* means, const BlockSizes&, const float* dy, std::int64_t outputs, float* product);

/// `scales`: least value and step of every group.
void quantize(const float* x, const QuantizeSizes&, Rounding, std::uint64_t seed, float* scales, std::uint8_t* packed);
void dequantize(const std::uint8_t* packed, const float* scales, const QuantizeSizes&, float* x);

}  // namespace plain
}  // namespace plimsoll
