#pragma once
// Graphs of ops in Graphviz's DOT language, as partitioners of graphs read and write them. The attributes that count
// are described in traces/imports.md; all others are drawing.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
Graph read_dot_graph(const std::filesystem::path&);
Graph parse_dot_graph(const std::string& text, const std::string& file_name);

}  // namespace plimsoll
