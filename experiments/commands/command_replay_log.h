#pragma once
// plimsoll replay-log

#include "experiments/commands/commands.h"

namespace plimsoll {

void add_replay_log_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
