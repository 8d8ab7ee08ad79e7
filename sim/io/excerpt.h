#pragma once
// A line of a text with a caret under one of its columns, as messages show what they are about.

#include <string>
#include <string_view>

#include "sim/io/input_error.h"

namespace plimsoll {

/// Two lines, `  the line` and `  ^` under the character at the place; nothing where the text has no such line or it is
/// blank. Long lines are cut around the place; tabs, wide characters and what would be printed escaped keep their room.
std::string excerpt(std::string_view text, Position);

}  // namespace plimsoll
