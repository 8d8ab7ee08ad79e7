#pragma once
// plimsoll export: what other programs read.

#include <CLI/CLI.hpp>

namespace plimsoll {

void add_export_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
