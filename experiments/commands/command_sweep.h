#pragma once
// plimsoll sweep: all points of an experiment file.

#include <CLI/CLI.hpp>
#include <string>

namespace plimsoll {

void add_sweep_command(CLI::App& app, int& exit_code, const std::string& command_line);

}  // namespace plimsoll
