#pragma once
// Reads the graphs of Piper's authors: one JSON object, described key by key in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/core/chain.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_piper_graph(const std::filesystem::path&);
LayerTable parse_piper_graph(std::string text, std::string file_name);

/// The same as a chain (traces/imports/layer_chain.h): layers on one device. Its source says which ways to run layers
/// it does without.
Chain read_piper_chain(const std::filesystem::path&);
Chain parse_piper_chain(std::string text, std::string file_name);

}  // namespace plimsoll
