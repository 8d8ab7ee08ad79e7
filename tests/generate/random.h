#pragma once
// Random numbers that are the same everywhere: the raw output of a standard generator and our own mapping of it, since
// the standard's distributions differ between libraries.

#include <cstdint>
#include <random>

namespace plimsoll {

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}

  /// 0 .. bound - 1; the bias is below bound / 2^32.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(((generator_() >> 32) * bound) >> 32); }
  std::uint32_t between(std::uint32_t least, std::uint32_t most) { return least + below(most - least + 1); }
  bool chance(double probability) { return unit() < probability; }

  /// In [0, 1), all 53 bits.
  double unit() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 generator_;
};

}  // namespace plimsoll
