#pragma once
// `plimsoll stages`: cuts a model into stages of a pipeline with one of the published planners.

#include <CLI/CLI.hpp>

namespace plimsoll {

void add_stages_command(CLI::App&, int& exit_code);

}  // namespace plimsoll
