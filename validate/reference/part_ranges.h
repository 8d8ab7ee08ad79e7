#pragma once
// Quantization by the ranges of parts whose values are not in a row, heads or channels, or by a fixed range, in plain
// loops. Pan et al., Mesa (2021); Evans and Aamodt, AC-GC (2021); Chakrabarti and Moseley (2019).

#include <cstdint>

#include "validate/reference/chance.h"

namespace plimsoll {

/// Values are outer x channels x inner; channel c is of part c * parts / channels. Numbers have 1 to 16 bits.
struct PartSizes {
  std::int64_t outer, channels, inner, parts;
  int bits;

  std::int64_t numbers() const { return outer * channels * inner; }
  std::int64_t packed_bytes() const { return (numbers() * bits + 7) / 8; }
};

namespace plain {

/// `scales`: least value and step of every part.
void quantize_parts(const float* x, const PartSizes&, Rounding, std::uint64_t seed, float* scales,
                    std::uint8_t* packed);
void dequantize_parts(const std::uint8_t* packed, const float* scales, const PartSizes&, float* x);

/// A sign and a size each, the sizes by the largest of every part; 0 stays 0. `bits`: 2 at least.
void quantize_sizes(const float* x, const PartSizes&, Rounding, std::uint64_t seed, float* largest,
                    std::uint8_t* packed);
void dequantize_sizes(const std::uint8_t* packed, const float* largest, const PartSizes&, float* x);

/// A bit for each value, set above 0, and sizes of those values in their order, `reserved` of them at most. Returns
/// how many there are, also where they are more.
std::int64_t quantize_above_zero(const float* x, const PartSizes&, std::int64_t reserved, Rounding, std::uint64_t seed,
                                 float* largest, std::uint8_t* mask, std::uint8_t* packed);
void dequantize_above_zero(const std::uint8_t* packed, const float* largest, const std::uint8_t* mask, const PartSizes&,
                           float* x);

/// 2^bits intervals between -3 and 3, the outer ones without end; those from 2^(bits - 1) on are of values above 0.
void quantize_fixed(const float* x, std::int64_t numbers, int bits, std::uint8_t* packed);
/// The middles of intervals; 0 for those that are not above 0 where a ReLU has made the values.
void dequantize_fixed(const std::uint8_t* packed, std::int64_t numbers, int bits, bool is_rectified, float* x);
/// A ReLU's, from its result: `dy` above 0, else 0 with the sign of `dy`.
void fixed_relu_gradient(const std::uint8_t* packed, int bits, const float* dy, std::int64_t numbers, float* dx);

}  // namespace plain
}  // namespace plimsoll
