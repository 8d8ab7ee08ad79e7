// Block means and quantization: what validate/reference/compression.cpp does.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {

void block_means(const float* x, const BlockSizes& s, float* means, cudaStream_t stream) {
  for_each(s.batch * s.rows() * s.columns() * s.channels, stream, [=] __device__(std::int64_t k) {
    const std::int64_t c = k % s.channels, j = k / s.channels % s.columns();
    const std::int64_t i = k / (s.channels * s.columns()) % s.rows(), n = k / (s.channels * s.columns() * s.rows());
    means[k] = block_mean(x, s, n, i, j, c);
  });
}

void expand_blocks(const float* means, const BlockSizes& s, float* x, cudaStream_t stream) {
  for_each(s.batch * s.height * s.width * s.channels, stream, [=] __device__(std::int64_t k) {
    const std::int64_t c = k % s.channels, w = k / s.channels % s.width;
    const std::int64_t h = k / (s.channels * s.width) % s.height, n = k / (s.channels * s.width * s.height);
    const std::int64_t block = (n * s.rows() + h / s.block_height()) * s.columns() + w / s.block;
    x[k] = means[block * s.channels + c];
  });
}

/// One thread a group for its scale, then one a byte for the numbers in it.
void quantize(const float* x, const QuantizeSizes& s, Rounding rounding, std::uint64_t seed, float* scales,
              std::uint8_t* packed, cudaStream_t stream) {
  for_each(s.groups(), stream, [=] __device__(std::int64_t g) {
    const std::int64_t first = g * s.group, last = first + s.group < s.numbers ? first + s.group : s.numbers;
    float least = x[first], largest = x[first];
    for (std::int64_t i = first + 1; i < last; ++i) {
      least = x[i] < least ? x[i] : least;
      largest = x[i] > largest ? x[i] : largest;
    }
    scales[2 * g] = least;
    scales[2 * g + 1] = (largest - least) / static_cast<float>(s.levels());
  });
  for_each(s.packed_bytes(), stream, [=] __device__(std::int64_t b) {
    const std::int64_t per_byte = 8 / s.bits;
    std::uint32_t byte = 0;
    for (std::int64_t k = 0; k < per_byte && b * per_byte + k < s.numbers; ++k) {
      const std::int64_t i = b * per_byte + k, g = i / s.group;
      const float offset = rounding == Rounding::nearest ? 0.5F : unit_of(seed, static_cast<std::uint64_t>(i));
      byte |= level_of(x[i], scales[2 * g], scales[2 * g + 1], s.levels(), offset) << (k * s.bits);
    }
    packed[b] = static_cast<std::uint8_t>(byte);
  });
}

void dequantize(const std::uint8_t* packed, const float* scales, const QuantizeSizes& s, float* x,
                cudaStream_t stream) {
  for_each(s.numbers, stream, [=] __device__(std::int64_t i) {
    const std::uint32_t level = (static_cast<std::uint32_t>(packed[i * s.bits / 8]) >> (i * s.bits % 8)) &
                                static_cast<std::uint32_t>(s.levels());
    const std::int64_t g = i / s.group;
    x[i] = scales[2 * g] + static_cast<float>(level) * scales[2 * g + 1];
  });
}

}  // namespace plimsoll::launch
