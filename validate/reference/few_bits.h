#pragma once
// Packed forms of few bits in plain loops: floating point numbers of fewer bits, steps of a derivative, rows of the
// values that are not 0.

#include <cstdint>
#include <vector>

namespace plimsoll {

/// Floating point numbers of `bits` bits (8, 16 or 32): a sign, an exponent of 8 bits at most, a fraction of 23 at
/// most; as IEEE 754 has them.
struct FloatFormat {
  int bits, exponent;

  int fraction() const { return bits - 1 - exponent; }
  int bias() const { return (1 << (exponent - 1)) - 1; }
};

/// The derivative of a function taken for constant between `bounds`, which ascend: `levels` has one more.
struct DerivativeSteps {
  std::vector<float> bounds, levels;
};

namespace plain {

/// Rounded to the nearest, of two equally near to the even one; beyond the largest number infinity.
std::uint32_t narrowed(float x, const FloatFormat&);
float widened(std::uint32_t code, const FloatFormat&);

void narrow(const float* x, std::int64_t numbers, const FloatFormat&, std::uint8_t* packed);
void widen(const std::uint8_t* packed, std::int64_t numbers, const FloatFormat&, float* x);

/// Of GELU, 2^bits steps between -4 and 4 with the least sum of squares on a grid of 512 points, by dynamic
/// programming, as FewBit chooses them. Found once.
const DerivativeSteps& gelu_steps(int bits);

/// Which step each value lies in: `bits` bits each, from a byte's low bit up and on into the next.
void steps_of(const float* x, std::int64_t numbers, int bits, const DerivativeSteps&, std::uint8_t* packed);
void stepped_gradient(const std::uint8_t* packed, int bits, const DerivativeSteps&, const float* dy,
                      std::int64_t numbers, float* dx);

/// The values that are not +0 in their order, `reserved` of them at most, each with its place in a row of 256; row i
/// has those from `first[i]` to `first[i + 1]`. Returns how many there are, also where they are more.
std::int64_t compress_rows(const float* x, std::int64_t numbers, std::int64_t reserved, float* values,
                           std::int32_t* first, std::uint8_t* places);
void expand_rows(const float* values, const std::int32_t* first, const std::uint8_t* places, std::int64_t numbers,
                 float* x);

}  // namespace plain
}  // namespace plimsoll
