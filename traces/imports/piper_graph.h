#pragma once
// Reads the graphs of Piper's authors: one JSON object, described key by key in traces/imports.md.

#include <filesystem>
#include <string>

#include "traces/layer_table.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_piper_graph(const std::filesystem::path&);
LayerTable parse_piper_graph(std::string text, std::string file_name);

}  // namespace plimsoll
