#pragma once
// How packed forms are rounded and drawn at random: by numbers that follow from a seed and a counter alone, so that the
// same value with the same seed becomes the same bytes, in whatever order and by whichever thread.

#include <cstdint>

#include "validate/reference/formulas.h"

namespace plimsoll {

enum class Rounding : std::uint8_t { nearest, stochastic };

/// How the quantizations of a run round, and the seed of all that is drawn in it.
struct Chance {
  Rounding rounding = Rounding::stochastic;
  std::uint64_t seed = 0;
};

/// In [0, 1), from a seed and a counter: splitmix64's top 24 bits.
PLIMSOLL_ON_BOTH inline float unit_of(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t x = seed + (counter + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  x ^= x >> 31U;
  return static_cast<float>(x >> 40U) * 0x1p-24F;
}

/// The seed of what is drawn for one value: of the run's seed and of the value's own bits, so that every value has
/// numbers of its own, whatever it is called and whoever packs it.
std::uint64_t seed_for(std::uint64_t run, const float* x, std::int64_t n);

}  // namespace plimsoll
