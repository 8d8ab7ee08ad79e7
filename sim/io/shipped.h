#pragma once
// Files that come with the program and are called by name: `resnet50_b8` is traces/data/resnet50_b8.json, or
// resnet50_b8.json.gz.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct ShippedFiles {
  std::string_view noun;       ///< `trace`, for messages
  std::string_view folder;     ///< below each of data_folders()
  std::string_view extension;  ///< `.json`
};

/// Where shipped files are, the folder to look in first at the head: what PLIMSOLL_DATA names; then, from the folder of
/// the program, or of the shared object that holds it, upwards, the first that holds `platforms` and `traces` itself (a
/// source tree) or in share/plimsoll (a prefix).
std::vector<std::filesystem::path> data_folders();

/// Such a file by its path below these folders, `experiments/plot.py`; throws InputError where none has it.
std::filesystem::path shipped_file(std::string_view path);

/// A path to a file as it is, or a shipped name; throws where it is neither. `others`: names that are no files, which
/// may be meant.
std::filesystem::path find_file(std::string_view name_or_path, const ShippedFiles&,
                                const std::vector<std::string>& others = {});

/// Names in alphabetical order.
std::vector<std::string> shipped_names(const ShippedFiles&);

}  // namespace plimsoll
