#pragma once
// Platform files: YAML text -> Platform. The format is described key by key in platforms/README.md.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/platform.h"

namespace plimsoll {

/// What `--platform` takes: a path or the name of a shipped platform.
Platform load_platform(std::string_view name_or_path);

Platform read_platform(const std::filesystem::path&);
Platform parse_platform(const std::string& text, std::string file_name);

/// The file that a path or a shipped name means; throws where there is none.
std::filesystem::path find_platform(std::string_view name_or_path);
std::vector<std::string> shipped_platforms();

}  // namespace plimsoll
