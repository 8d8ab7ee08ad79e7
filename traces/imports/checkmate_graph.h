#pragma once
// Graphs in the manner of Checkmate's published ones: nodes with a size, a cost and a direction, edges between them,
// nothing more. JSON, described key by key in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"

namespace plimsoll {

/// Throws InputError, located, where the file is none or its edges do not follow the order of the nodes.
Graph read_checkmate_graph(const std::filesystem::path&);
Graph parse_checkmate_graph(std::string text, std::string file_name);

}  // namespace plimsoll
