#pragma once
// Reads the layers of SAPP's pipeline balancing: one JSON object, described key by key in traces/imports.md,
// "Importers".

#include <filesystem>
#include <string>

#include "traces/layer_table.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_sapp_layers(const std::filesystem::path&);
LayerTable parse_sapp_layers(std::string text, std::string file_name);

}  // namespace plimsoll
