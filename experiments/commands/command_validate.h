#pragma once
// plimsoll calibrate, validate and compare: this machine measured, and the simulator held against it.

#include <CLI/CLI.hpp>
#include <string>

namespace plimsoll {

void add_calibrate_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_validate_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_compare_command(CLI::App&, int& exit_code, const std::string& command_line);

}  // namespace plimsoll
