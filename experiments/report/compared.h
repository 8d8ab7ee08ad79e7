#pragma once
// Reports of several folders that are not merged, and figures that show several cases.

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/merge/merge.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// What figures can show together: `folders`, `models`, `platforms`, `micro-batches`, `optimizers`.
std::vector<std::string> together_words();

/// Adds to a report's data `together[]`: `file`, `by` (those words) and `figures`, places of two or more that differ in
/// nothing else. Each such figure has the place of its list as `together`.
void put_together(Json& data, const std::vector<std::string>& words);

/// The data of one report of several folders: each figure has its `folder`, and points have numbers of their own, which
/// begin at each folder's `first_point` in `folders[]` (`name`, `experiment`, `first_point`).
Json compared_data(const std::vector<NamedContents>&, const std::string& made_by);

/// Writes results.csv, report.html, report.json, results.sqlite and pictures of what is together, and returns the
/// paths. The folders are not merged, so they may be of other builds, options or budgets. Throws InputError where one
/// holds no results or is there twice.
std::vector<std::filesystem::path> write_comparison(const std::vector<NamedContents>&,
                                                    const std::filesystem::path& folder, const std::string& made_by,
                                                    const std::vector<std::string>& words, std::size_t most_pictures);

}  // namespace plimsoll
