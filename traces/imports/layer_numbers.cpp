#include "traces/imports/layer_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/io/quantity.h"

namespace plimsoll {

Bytes rounded_bytes(JsonCursor cursor) {
  const double value = cursor.number();
  constexpr auto most = static_cast<double>(largest_bytes.count);
  if (value > most) cursor.complain(fmt::format("expected at most {:.0f} bytes, {}", most, cursor.found()));
  return {std::llround(std::min(value, most))};
}

Seconds seconds_in(JsonCursor cursor, double unit) {
  const double value = cursor.number(), most = longest_seconds.value / unit;
  if (value > most) cursor.complain(fmt::format("absurdly long, expected at most {:.0f}, {}", most, cursor.found()));
  return {std::min(value * unit, longest_seconds.value)};
}

}  // namespace plimsoll
