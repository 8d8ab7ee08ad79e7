#pragma once
// Pictures, drawn by python3 with matplotlib.

#include <initializer_list>
#include <string>
#include <string_view>

namespace plimsoll {

/// Runs a shipped script, `experiments/plot.py`, with these arguments. Throws InputError where python3 or matplotlib is
/// missing or the script fails, OutputError where it cannot write.
void draw_by_python(std::string_view script, std::initializer_list<std::string> arguments);

}  // namespace plimsoll
