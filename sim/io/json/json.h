#pragma once
// JSON for writing: keys stay in the order in which they were put.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll {

using Json = nlohmann::ordered_json;

/// The text, in one line unless indented. Bytes of strings that are not UTF-8 are escaped (sim/io/printable.h).
std::string json_text(const Json&, int indent = -1);

/// Indented by two, with a newline at the end, in place at once or not at all.
void write_json_file(const std::filesystem::path&, const Json&);

}  // namespace plimsoll
