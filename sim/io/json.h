#pragma once
// JSON for writing: keys stay in the order in which they were put.

#include <filesystem>
#include <nlohmann/json.hpp>

namespace plimsoll {

using Json = nlohmann::ordered_json;

/// Indented by two, with a newline at the end, in place at once or not at all.
void write_json_file(const std::filesystem::path&, const Json&);

}  // namespace plimsoll
