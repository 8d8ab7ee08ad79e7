#pragma once
// Reads the profiles of PipeDream's authors (graph.txt): a line a node with its times and sizes, a line an edge. The
// syntax is described in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/core/chain.h"

namespace plimsoll {

/// A node is a stage. Inputs, and results of a call that nobody reads, are left out, as PipeDream's optimizer does.
/// Throws InputError with file:line:column for what is malformed.
Chain read_pipedream_profile(const std::filesystem::path&);
Chain parse_pipedream_profile(const std::string& text, const std::string& file_name);

}  // namespace plimsoll
