#pragma once
// Files that come with the program and are called by name: `resnet50_b8` is traces/data/resnet50_b8.json.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct ShippedFiles {
  std::string_view noun;       ///< `trace`, for messages
  std::string_view folder;     ///< below the source tree, or below the folder that PLIMSOLL_DATA names
  std::string_view extension;  ///< `.json`
};

/// A path to a file as it is, or a shipped name; throws where it is neither.
std::filesystem::path find_file(std::string_view name_or_path, const ShippedFiles&);

/// Names in alphabetical order.
std::vector<std::string> shipped_names(const ShippedFiles&);

}  // namespace plimsoll
