#pragma once
// plimsoll replay: a schedule run with real tensors and kernels.

#include <CLI/CLI.hpp>
#include <string>

namespace plimsoll {

void add_replay_command(CLI::App&, int& exit_code, const std::string& command_line);

}  // namespace plimsoll
