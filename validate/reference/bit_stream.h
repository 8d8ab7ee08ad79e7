#pragma once
// Numbers of a few bits in a row, from a byte's low bit up and on into the next.

#include <bit>
#include <cstdint>

namespace plimsoll {

/// One of two numbers. Compilers make branches of conditions, which take as long as they are hard to foretell.
inline std::uint32_t chosen(bool condition, std::uint32_t one, std::uint32_t other) {
  return other ^ ((one ^ other) & (0U - static_cast<std::uint32_t>(condition)));
}
inline float chosen(bool condition, float one, float other) {
  return std::bit_cast<float>(
      chosen(condition, std::bit_cast<std::uint32_t>(one), std::bit_cast<std::uint32_t>(other)));
}

/// Writes numbers one behind the other; where it branches depends on their bits, not on their values.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* to) : to_(to) {}

  /// A number of at most so many bits, of at most 16.
  void put(std::uint32_t number, int bits) {
    held_ |= static_cast<std::uint64_t>(number) << count_;
    count_ += bits;
    if (count_ >= word) {
      write(word);
      count_ -= word;
    }
  }
  /// The last bits, whose byte is filled up with zeros. Nothing can be put behind them.
  void end() { write(count_); }

 private:
  static constexpr int word = 32;

  void write(int bits) {
    for (int bit = 0; bit < bits; bit += 8, held_ >>= 8U) *to_++ = static_cast<std::uint8_t>(held_);
  }

  std::uint8_t* to_;
  std::uint64_t held_ = 0;  ///< not yet in memory
  int count_ = 0;           ///< of bits held
};

/// Reads no byte that the number, of 16 bits at most, has no bit in.
inline std::uint32_t bits_at(const std::uint8_t* packed, std::int64_t bit, int bits) {
  const std::uint8_t* from = packed + bit / 8;
  std::uint32_t number = static_cast<std::uint32_t>(*from) >> (bit % 8);
  for (int there = 8 - static_cast<int>(bit % 8); there < bits; there += 8) {
    number |= static_cast<std::uint32_t>(*++from) << there;
  }
  return number & ((1U << bits) - 1U);
}

}  // namespace plimsoll
