#pragma once
// Numbers of a few bits in a row, from a byte's low bit up and on into the next.

#include <cstdint>

namespace plimsoll {

/// Sets the bits of a number of at most 16; those in memory must be 0.
inline void put_bits(std::uint8_t* packed, std::int64_t bit, std::uint32_t number) {
  std::uint8_t* to = packed + bit / 8;
  for (std::uint32_t left = number << (bit % 8); left != 0; left >>= 8U, ++to) {
    *to = static_cast<std::uint8_t>(*to | (left & 255U));
  }
}

/// Reads no byte that the number has no bit in.
inline std::uint32_t bits_at(const std::uint8_t* packed, std::int64_t bit, int bits) {
  const std::uint8_t* from = packed + bit / 8;
  std::uint32_t number = static_cast<std::uint32_t>(*from) >> (bit % 8);
  for (int there = 8 - static_cast<int>(bit % 8); there < bits; there += 8) {
    number |= static_cast<std::uint32_t>(*++from) << there;
  }
  return number & ((1U << bits) - 1U);
}

}  // namespace plimsoll
