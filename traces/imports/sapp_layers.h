#pragma once
// Reads the layers of SAPP's pipeline balancing: one JSON object, described key by key in traces/imports.md,
// "Importers".

#include <filesystem>
#include <string>

#include "sim/core/chain.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_sapp_layers(const std::filesystem::path&);
LayerTable parse_sapp_layers(std::string text, std::string file_name);

/// The same as a chain (traces/imports/layer_chain.h): equal layers one by one. Its source says which ways to run
/// layers it does without.
Chain read_sapp_chain(const std::filesystem::path&);
Chain parse_sapp_chain(std::string text, std::string file_name);

}  // namespace plimsoll
