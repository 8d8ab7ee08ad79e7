#pragma once
// Load lines as a table for a terminal.

#include <string>

#include "experiments/load/load_line.h"

namespace plimsoll {

std::string load_table(const LoadQuestion&, const LoadAnswer&);

/// Why no strategy has a value that fits, and the least memory that one of them needs: one line.
std::string nothing_fits(const LoadQuestion&, const LoadAnswer&);

}  // namespace plimsoll
