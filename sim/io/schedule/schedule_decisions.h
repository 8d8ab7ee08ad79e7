#pragma once
// What searches decided about a schedule's problem, as its file has it: read key by key here; whether it fits the
// problem shows when that is built.

#include <string>

#include "sim/core/decisions.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {

Decisions read_decisions(JsonCursor);

/// An object of a line a cut, within a list that is indented by one.
std::string decisions_text(const Decisions&);

}  // namespace plimsoll
