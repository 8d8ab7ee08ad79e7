#pragma once
// Answers that several sweeps share: a folder with a file a point, named by its key. A file is written under another
// name and renamed, so that any number of machines may write here at once, and no lock is asked of a file system.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "sim/io/json/json.h"

namespace plimsoll {

class PointCache {
 public:
  /// Makes the folder where it is missing. Throws InputError where it cannot be one.
  explicit PointCache(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }

  /// The record with this key; nothing where there is none, or none that is whole.
  std::optional<Json> find(const std::string& key) const;

  /// Keeps a record. What cannot be written is left out: that a cache lacks it costs time alone.
  void keep(const std::string& key, std::string_view record);

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
  std::string own_;  ///< ends the names of what this process has not finished
};

}  // namespace plimsoll
