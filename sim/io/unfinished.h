#pragma once
// Files that are written beside their place and renamed when they are whole.

#include <filesystem>

namespace plimsoll {

/// Where this process writes such a file. What processes that have ended since left there for the same file is removed.
std::filesystem::path unfinished_beside(const std::filesystem::path&);

}  // namespace plimsoll
