#pragma once
// The streams of a schedule file. Version 2 says where each computes, or between which places it copies; version 1 had
// a word for each pair of places.

#include "sim/core/schedule.h"
#include "sim/io/json/json.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {

/// One stream, of either version; complains where it is neither.
Stream read_stream(JsonCursor);

/// Streams of version 1 between devices did not say to which: the first of their steps does.
void find_peers(Schedule&);

/// As version 2 has it.
Json json_of(const Stream&);

}  // namespace plimsoll
