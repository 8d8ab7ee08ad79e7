#pragma once
// The load line that a report shows first: what `plimsoll load -o` has left in the folder of a sweep.

#include <filesystem>

#include "sim/io/json/json.h"

namespace plimsoll {

/// The folder's load.json; null: it has none. Throws InputError where that is no load line, or not a whole one.
Json read_load(const std::filesystem::path& folder);

/// Whether there is a picture: some strategy has a value that fits.
bool has_load_picture(const Json& load);

}  // namespace plimsoll
