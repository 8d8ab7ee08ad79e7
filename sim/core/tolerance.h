#pragma once
// How far numbers of floating point may be apart and still say the same. Every tolerance of the program is one of
// these: relative, unless it says what it is of.

#include <algorithm>
#include <cmath>

namespace plimsoll {

/// The same numbers added up in another order: room for some 9,000 roundings of 2^-53.
inline constexpr double sum_tolerance = 1e-12;

/// The same quantity in two ways: by another formula or engine, by a solver, or with a text between them.
inline constexpr double model_tolerance = 1e-9;

/// A number that was kept in single precision.
inline constexpr double float_tolerance = 1e-6;

/// Two products of two roundings each, at most 2^-53 of the value, with room to spare.
inline constexpr double product_tolerance = 2e-15;

/// Whether both ways come to the same quantity; never for NaN.
inline bool agree(double a, double b) {
  return std::abs(a - b) <= model_tolerance * std::max(std::abs(a), std::abs(b));
}

/// Whether the value is its lower bound, or so near that only the order of the sums can tell them apart.
template <class Quantity>
constexpr bool reaches(Quantity value, Quantity bound) {
  return value <= (1 + sum_tolerance) * bound;
}

/// Whether the value is less by more than the order of the sums.
template <class Quantity>
constexpr bool is_below(Quantity value, Quantity other) {
  return value < (1 - sum_tolerance) * other;
}

/// A distance from a bound that is nothing but rounding is none.
constexpr double beyond_rounding(double gap, double tolerance = sum_tolerance) {
  return gap <= tolerance ? 0 : gap;
}

/// Next whole numbers; what is as near to one as this is that one.
inline constexpr double whole_tolerance = 1e-9;  // absolute

inline double whole_above(double number) {
  return std::ceil(number - whole_tolerance);
}

inline double whole_below(double number) {
  return std::floor(number + whole_tolerance);
}

}  // namespace plimsoll
