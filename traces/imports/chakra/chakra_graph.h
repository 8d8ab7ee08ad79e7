#pragma once
// What one rank does in an execution trace of Chakra as a graph.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"

namespace plimsoll {

/// Throws InputError.
Graph parse_chakra_graph(std::string text, const std::string& file_name);
Graph read_chakra_graph(const std::filesystem::path&);

}  // namespace plimsoll
