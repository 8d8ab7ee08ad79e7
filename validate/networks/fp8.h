#pragma once
// Numbers of 8 bits as the OCP 8-bit Floating Point Specification (revision 1.0) has them: E4M3 has no infinity, E5M2
// has. Products round their operands to them with one scale a tensor, from its largest magnitude at that moment.

#include "validate/networks/bf16.h"

namespace plimsoll {

/// Gradients reach further, everything else is finer.
enum class In8Bits : std::uint8_t { e4m3, e5m2 };

/// A sign, an exponent with this bias, a fraction of so many bits.
struct E4m3 {
  static constexpr std::int32_t fraction = 3, bias = 7;
  static constexpr std::uint8_t largest_code = 0x7E, none_code = 0x7F;
  static constexpr float largest = 448.0F;
  std::uint8_t bits;
};

struct E5m2 {
  static constexpr std::int32_t fraction = 2, bias = 15;
  static constexpr std::uint8_t largest_code = 0x7B, none_code = 0x7F;
  static constexpr float largest = 57344.0F;
  std::uint8_t bits;
};

PLIMSOLL_ON_BOTH inline float float_of_bits(std::uint32_t bits) {
  float x = 0;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// 2^exponent, of a normal number.
PLIMSOLL_ON_BOTH inline float power_of_two(std::int32_t exponent) {
  return float_of_bits(static_cast<std::uint32_t>(127 + exponent) << 23U);
}

/// The number of a code.
template <class Number>
PLIMSOLL_ON_BOTH inline float float_of_8_bits(std::uint8_t code) {
  constexpr std::uint32_t fraction = Number::fraction;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24U, magnitude = code & 0x7FU;
  if (magnitude > Number::largest_code) {
    const bool is_infinite = Number::largest_code + 1U != Number::none_code && magnitude == Number::largest_code + 1U;
    return float_of_bits(sign | (is_infinite ? 0x7F800000U : 0x7FC00000U));
  }
  if (magnitude >> fraction == 0) {  // no leading one
    const float small = static_cast<float>(magnitude) * power_of_two(1 - Number::bias - Number::fraction);
    return sign != 0 ? -small : small;
  }
  constexpr std::uint32_t rebased = static_cast<std::uint32_t>(127 - Number::bias) << 23U;
  return float_of_bits(sign | ((magnitude << (23U - fraction)) + rebased));
}

/// To the nearest, of two as near the even one; beyond the largest, infinity too, the largest. What is no number stays
/// none.
template <class Number>
PLIMSOLL_ON_BOTH inline std::uint8_t in_8_bits(float x) {
  constexpr std::uint32_t fraction = Number::fraction;
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  const std::uint32_t sign = (bits >> 24U) & 0x80U, magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t code = Number::largest_code;
  const float size = float_of_bits(magnitude);
  if (magnitude > 0x7F800000U) {
    code = Number::none_code;
  } else if (size < power_of_two(1 - Number::bias)) {  // the sum's last place is that of the smallest numbers
    const float whole = power_of_two(24 - Number::bias - Number::fraction), sum = size + whole;
    std::uint32_t of_sum = 0, of_whole = 0;
    memcpy(&of_sum, &sum, sizeof sum);
    memcpy(&of_whole, &whole, sizeof whole);
    code = of_sum - of_whole;
  } else if (size < Number::largest) {
    constexpr std::uint32_t cut = 23U - fraction, rebased = static_cast<std::uint32_t>(127 - Number::bias) << fraction;
    code = ((magnitude + (1U << (cut - 1U)) - 1U + ((magnitude >> cut) & 1U)) >> cut) - rebased;
  }
  return static_cast<std::uint8_t>(sign | code);
}

PLIMSOLL_ON_BOTH inline float as_float(E4m3 x) {
  return float_of_8_bits<E4m3>(x.bits);
}
PLIMSOLL_ON_BOTH inline float as_float(E5m2 x) {
  return float_of_8_bits<E5m2>(x.bits);
}
template <>
PLIMSOLL_ON_BOTH inline E4m3 stored_as<E4m3>(float x) {
  return {in_8_bits<E4m3>(x)};
}
template <>
PLIMSOLL_ON_BOTH inline E5m2 stored_as<E5m2>(float x) {
  return {in_8_bits<E5m2>(x)};
}

/// By what a tensor is multiplied before it is rounded, by its largest magnitude: that becomes the largest number. 1
/// where all are 0 or one is infinite; never infinite.
template <class Number>
PLIMSOLL_ON_BOTH inline float scale_to_8_bits(float largest_magnitude) {
  constexpr float most = 3.402823466e+38F;
  if (largest_magnitude == 0.0F || !(largest_magnitude <= most)) return 1.0F;
  const float scale = Number::largest / largest_magnitude;
  return scale > most ? most : scale;
}

}  // namespace plimsoll
