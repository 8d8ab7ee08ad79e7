#include "strategies/rematerialization/dtr/dtr_heuristic.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide exact_in_double = Wide{1} << 53;

/// Long division bit by bit: 54 bits of the quotient and whether anything is left decide the rounding.
double quotient(Wide numerator, Wide denominator) {
  int exponent = 0;
  while (numerator < denominator) {
    numerator <<= 1U;
    --exponent;
  }
  while (numerator >= denominator << 1U) {
    denominator <<= 1U;
    ++exponent;
  }
  std::uint64_t bits = 0;
  constexpr int digits = 54;  // one more than a double has
  for (int d = 0; d < digits; ++d) {
    bits <<= 1U;
    if (numerator >= denominator) {
      bits |= 1U;
      numerator -= denominator;
    }
    numerator <<= 1U;
  }
  const bool half = (bits & 1U) != 0, more = numerator != 0;
  bits >>= 1U;
  if (half && (more || (bits & 1U) != 0)) ++bits;
  return std::ldexp(static_cast<double>(bits), exponent - (digits - 2));
}

}  // namespace

double eviction_cost(std::int64_t weight, std::int64_t bytes, std::int64_t staleness) {
  if (bytes <= 0 || staleness <= 0) return std::numeric_limits<double>::infinity();
  if (weight == 0) return 0;
  const Wide numerator = weight < 0 ? Wide{0} - static_cast<Wide>(weight) : static_cast<Wide>(weight);
  const Wide denominator = static_cast<Wide>(bytes) * static_cast<Wide>(staleness);
  const double cost = numerator <= exact_in_double && denominator <= exact_in_double
                          ? static_cast<double>(numerator) / static_cast<double>(denominator)
                          : quotient(numerator, denominator);
  return weight < 0 ? -cost : cost;
}

}  // namespace plimsoll
