#pragma once
// Platform files: YAML text -> Platform. The format is described key by key in platforms/README.md.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/platform.h"

namespace plimsoll {

/// What `--platform` takes: a path or the name of a shipped platform, perhaps with options (with_options).
Platform load_platform(std::string_view reference);

/// The platform under the reference's name, with what stands behind its colon: `h200:efficiency=h200_sxm` gives all
/// devices these efficiencies. Without a colon as it is.
Platform with_options(Platform, std::string_view reference);

Platform read_platform(const std::filesystem::path&);
Platform parse_platform(const std::string& text, std::string file_name);

/// The file that a path or a shipped name means, without options; throws where there is none.
std::filesystem::path find_platform(std::string_view reference);
std::vector<std::string> shipped_platforms();

}  // namespace plimsoll
