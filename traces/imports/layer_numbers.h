#pragma once
// Numbers as other planners' files have them: bytes with fractions, times in units of their own.

#include "sim/io/json/json_cursor.h"

namespace plimsoll {

/// To the nearest byte.
Bytes rounded_bytes(JsonCursor);

/// A number of units of so many seconds each.
Seconds seconds_in(JsonCursor, double unit);

}  // namespace plimsoll
