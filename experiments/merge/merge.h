#pragma once
// One folder of results made of several: of the shards of an experiment, or of experiments that differ in their lists.

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/sweep/sweep_store.h"

namespace plimsoll {

/// A folder, and what it holds.
struct NamedContents {
  std::filesystem::path folder;
  SweepContents contents;
};

std::vector<NamedContents> read_sweeps(const std::vector<std::filesystem::path>& folders);

/// The points of all. Lists of experiments that differ are joined; of `name` the first counts. Throws InputError where
/// other keys differ, where files of one name have other contents, and where two folders answer a point, or know a
/// case, differently (but for the times that planning and simulating have taken).
SweepContents merged(const std::vector<NamedContents>&);

/// Merges sweeps' folders into one that is new or empty, or has results that are to be replaced. Returns how many
/// points it has, and of how many.
struct MergeCount {
  std::size_t found = 0, all = 0;
};
MergeCount merge_sweeps(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& into,
                        const std::string& command_line, bool replace = false);

}  // namespace plimsoll
