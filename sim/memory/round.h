#pragma once
// Bytes in whole units.

#include "sim/core/units.h"

namespace plimsoll {

constexpr Bytes round_down(Bytes size, Bytes unit) {
  return (size.count / unit.count) * unit;
}
constexpr Bytes round_up(Bytes size, Bytes unit) {
  return round_down(size + unit - Bytes{1}, unit);
}

}  // namespace plimsoll
