#pragma once
// plimsoll report: figures, a page and a table of the results of a sweep.

#include <CLI/CLI.hpp>
#include <string>

namespace plimsoll {

void add_report_command(CLI::App& app, int& exit_code, const std::string& command_line);

}  // namespace plimsoll
