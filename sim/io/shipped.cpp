#include "sim/io/shipped.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders(const ShippedFiles& files) {
  std::vector<fs::path> list = data_folders();
  for (fs::path& folder : list) folder /= files.folder;
  return list;
}

constexpr const char* compressed = ".gz";

/// Of a file with the extension, compressed or not.
std::optional<std::string> shipped_name(fs::path path, const ShippedFiles& files) {
  if (path.extension() == compressed) path.replace_extension();
  if (path.extension() != files.extension) return {};
  return path.stem().string();
}

/// The program, or the shared object that holds it, such as a module of Python; empty where the system has no /proc.
fs::path own_file() {
  static const char mark = 0;
  Dl_info of{};
  std::error_code none;
  if (dladdr(&mark, &of) != 0 && of.dli_fname != nullptr && fs::path(of.dli_fname).extension() == ".so") {
    return fs::canonical(of.dli_fname, none);
  }
  return fs::read_symlink("/proc/self/exe", none);
}

/// Whether a folder is one of shipped files: the source tree, or share/plimsoll in a prefix.
bool holds_shipped_files(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "platforms", ignored) && fs::is_directory(folder / "traces", ignored);
}

}  // namespace

std::vector<fs::path> data_folders() {
  std::vector<fs::path> list;
  if (const char* data = std::getenv("PLIMSOLL_DATA")) list.emplace_back(data);
  for (fs::path above = own_file().parent_path(); !above.empty(); above = above.parent_path()) {
    for (const fs::path& folder : {above, above / "share" / "plimsoll"}) {
      if (!holds_shipped_files(folder)) continue;
      list.push_back(folder);
      return list;
    }
    if (above == above.root_path()) break;
  }
  return list;
}

fs::path shipped_file(std::string_view path) {
  std::error_code ignored;
  for (const fs::path& folder : data_folders()) {
    if (fs::exists(folder / path, ignored)) return folder / path;
  }
  throw InputError("the program's file '" + std::string(path) +
                   "' is missing: it belongs next to the program, in share/plimsoll of its prefix, or in the folder "
                   "that PLIMSOLL_DATA names");
}

namespace {

/// The nearest name, or where none is near and few there are all of them.
std::string names_instead(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t few = 20;
  std::string near = suggestion(word, names);
  if (!near.empty() || names.empty() || names.size() > few) return near;
  const std::vector<std::string_view> views(names.begin(), names.end());
  return "; expected " + alternatives(views);
}

}  // namespace

fs::path find_file(std::string_view name_or_path, const ShippedFiles& files, const std::vector<std::string>& others) {
  fs::path path(name_or_path);
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) return path;
  const bool is_path = name_or_path.find('/') != std::string_view::npos || shipped_name(path, files);
  if (is_path) return path;  // reading it says what is wrong
  for (const fs::path& folder : folders(files)) {
    for (const std::string_view ending : {"", compressed}) {
      fs::path candidate = folder / std::string(name_or_path).append(files.extension).append(ending);
      if (fs::exists(candidate, ignored)) return candidate;
    }
  }
  const std::string noun(files.noun);
  std::vector<std::string> names = shipped_names(files);
  names.insert(names.end(), others.begin(), others.end());
  throw InputError("no file and no shipped " + noun + " is called '" + std::string(name_or_path) + "'" +
                   names_instead(name_or_path.substr(0, name_or_path.find(':')), names) + " (plimsoll list " + noun +
                   "s)");
}

std::vector<std::string> shipped_names(const ShippedFiles& files) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const fs::path& folder : folders(files)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      if (std::optional<std::string> name = shipped_name(entry.path(), files)) names.insert(*std::move(name));
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace plimsoll
