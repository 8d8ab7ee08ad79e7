#pragma once
// Profiled graphs of ParDNN's authors as lines of text: ops with times, bytes and colocation, then edges. Described
// column by column in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
Graph read_pardnn_dag(const std::filesystem::path&);
Graph parse_pardnn_dag(const std::string& text, const std::string& file_name);

}  // namespace plimsoll
