#pragma once
// `plimsoll splits`: chooses splits of operators from a table of what they cost and keep.

#include <CLI/CLI.hpp>

namespace plimsoll {

void add_splits_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
