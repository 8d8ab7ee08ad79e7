#include "sim/io/shipped.h"

#include <cstdlib>
#include <set>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders(const ShippedFiles& files) {
  std::vector<fs::path> list{fs::path(PLIMSOLL_SOURCE_DIR) / files.folder};
  if (const char* data = std::getenv("PLIMSOLL_DATA")) list.push_back(fs::path(data) / files.folder);
  return list;
}

}  // namespace

fs::path find_file(std::string_view name_or_path, const ShippedFiles& files) {
  fs::path path(name_or_path);
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) return path;
  const bool is_path = name_or_path.find('/') != std::string_view::npos || path.extension() == files.extension;
  if (is_path) return path;  // reading it says what is wrong
  for (const fs::path& folder : folders(files)) {
    fs::path candidate = folder / (std::string(name_or_path) + std::string(files.extension));
    if (fs::exists(candidate, ignored)) return candidate;
  }
  const std::string noun(files.noun);
  throw InputError("no file and no shipped " + noun + " is called '" + std::string(name_or_path) + "'" +
                   suggestion(name_or_path, shipped_names(files)) + " (plimsoll list " + noun + "s)");
}

std::vector<std::string> shipped_names(const ShippedFiles& files) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const fs::path& folder : folders(files)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == files.extension) names.insert(entry.path().stem());
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace plimsoll
