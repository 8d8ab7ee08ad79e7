#pragma once
// Quantization in whole groups, of means of a few values each, in plain loops.

#include <cstdint>

#include "validate/reference/compression.h"

namespace plimsoll {

/// `values` of each of `samples`, `averaged` of which in a row are one number, their mean; the numbers of a sample are
/// filled up with zeros to whole groups if it `fills`. Scales of a group are two floats, or in bf16 where `narrow`.
struct PaddedSizes {
  std::int64_t samples, values, group;
  int averaged, bits;
  bool fills, narrow;

  std::int64_t numbers() const { return (values + averaged - 1) / averaged; }
  std::int64_t groups() const { return (numbers() + group - 1) / group; }  ///< of a sample
  std::int64_t written() const { return fills ? groups() * group : numbers(); }
  std::int64_t bytes_of_scales() const { return samples * groups() * (narrow ? 4 : 8); }
  std::int64_t packed_bytes() const { return (samples * written() * bits + 7) / 8; }
};

namespace plain {

/// Rounded by scales in fp32, whatever is written of them.
void quantize_padded(const float* x, const PaddedSizes&, Rounding, std::uint64_t seed, std::uint8_t* scales,
                     std::uint8_t* packed);
void dequantize_padded(const std::uint8_t* packed, const std::uint8_t* scales, const PaddedSizes&, float* x);

}  // namespace plain
}  // namespace plimsoll
