#pragma once
// plimsoll completion, plimsoll man: the commands and options of the parser, as a shell and as man(1) want them.

#include "experiments/commands/commands.h"

namespace plimsoll {

void add_completion_command(CLI::App&, int& exit_code);
void add_man_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
