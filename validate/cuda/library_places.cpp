#include "validate/cuda/library_places.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "validate/backend.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* variable = "PLIMSOLL_CUDA_LIBRARIES";

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Folders in a folder whose names begin so, the highest name first: python3.12 before python3.11.
std::vector<fs::path> folders_in(const fs::path& folder, const std::string& prefix = "") {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_directory(none) && entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::ranges::sort(found, std::ranges::greater{});
  return found;
}

/// Where packages of Python live: beside every python3 of the PATH, in the environment in use, in the user's own.
std::vector<fs::path> python_roots(const Environment& environment) {
  std::vector<fs::path> roots;
  const auto add = [&](const fs::path& root) {
    if (std::ranges::find(roots, root) == roots.end()) roots.push_back(root);
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::optional<std::string> root = environment(name)) add(*root);
  }
  for (const fs::path folder : parts_of(environment("PATH").value_or(""))) {
    std::error_code none;
    if (fs::exists(folder / "python3", none)) add(folder.parent_path());
  }
  if (const std::optional<std::string> home = environment("HOME")) add(fs::path(*home) / ".local");
  add("/usr/local");
  add("/usr");
  return roots;
}

std::vector<std::string> python_folders(const Environment& environment) {
  std::vector<std::string> folders;
  for (const fs::path& root : python_roots(environment)) {
    for (const char* lib : {"lib", "lib64"}) {
      std::vector<fs::path> pythons = folders_in(root / lib, "python3");
      for (const fs::path& python : pythons) {
        for (const char* packages : {"site-packages", "dist-packages"}) {
          for (const fs::path& package : folders_in(python / packages / "nvidia")) folders.push_back(package / "lib");
          folders.push_back(python / packages / "torch" / "lib");
        }
      }
    }
  }
  return folders;
}

std::vector<std::string> file_names(const SharedLibrary& library) {
  std::vector<std::string> names;
  for (const int major : library.majors) names.push_back(fmt::format("{}.{}", library.stem, major));
  return names;
}

}  // namespace

Environment this_environment() {
  return [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::vector<std::string> places_of(const SharedLibrary& library, const Environment& environment) {
  std::vector<std::string> folders{fs::path(library.built_with).parent_path().string()};
  for (const char* usual : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/opt/cuda/lib64",
                            "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"}) {
    folders.emplace_back(usual);
  }
  std::ranges::move(python_folders(environment), std::back_inserter(folders));
  std::vector<std::string> places;
  for (const std::string& name : file_names(library)) {
    for (const std::string& folder : parts_of(environment(variable).value_or("")))
      places.push_back(folder + "/" + name);
    places.push_back(name);
    for (const std::string& folder : folders) places.push_back(folder + "/" + name);
  }
  return places;
}

void* open_library(const SharedLibrary& library, const Environment& environment) {
  std::string broken;
  for (const std::string& place : places_of(library, environment)) {
    std::error_code none;
    const bool is_file = place.find('/') != std::string::npos;
    if (is_file && !fs::exists(place, none)) continue;
    if (void* opened = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    if (is_file && broken.empty()) broken = dlerror();
  }
  if (!broken.empty()) throw BackendError("no library for the CUDA backend: " + broken);
  throw BackendError(
      fmt::format("no library for the CUDA backend: {} is nowhere: neither where the system finds libraries "
                  "(LD_LIBRARY_PATH), nor in "
                  "a CUDA toolkit, nor in Python's packages (nvidia/*/lib); {} may name its folder",
                  fmt::join(file_names(library), " or "), variable));
}

}  // namespace plimsoll
