#pragma once
// plimsoll import FORMAT FILE -o TRACE: other programs' files become traces.

#include <CLI/CLI.hpp>
#include <string>

namespace plimsoll {

void add_import_command(CLI::App&, int& exit_code, const std::string& command_line);

}  // namespace plimsoll
