#pragma once
// Shares as percent that are written with so many digits.

#include <cmath>

namespace plimsoll {

/// What rounds to 0 is 0: nobody reads `-0.0 %`.
inline double in_percent(double share, int digits) {
  const double percent = 100 * share;
  return std::abs(percent) < 0.5 * std::pow(10.0, -digits) ? 0.0 : percent;
}

}  // namespace plimsoll
