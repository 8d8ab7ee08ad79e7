#pragma once
// Graphs of training iterations from what torch.compile and AOTAutograd print, and from lists of measured operators.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"
#include "traces/imports/import_numbers.h"

namespace plimsoll {

/// A forward graph with its backward graph, or the joint graph of both.
Graph parse_fx_graph(const std::string& text, const std::string& file_name, ImportNumbers&);

/// A list of a torch.fx graph's operators with measured times (CSV). `layers`: how many times what is `in_layer` comes.
Graph parse_fx_list(const std::string& text, const std::string& file_name, ImportNumbers&);

/// Whichever the file is.
Graph read_fx(const std::filesystem::path&, ImportNumbers&);

}  // namespace plimsoll
