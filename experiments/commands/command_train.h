#pragma once
// The command `train`.

#include <CLI/CLI.hpp>

namespace plimsoll {

void add_train_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
