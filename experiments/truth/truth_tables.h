#pragma once
// Predicted and measured iterations as tables: JSON, CSV, and those of docs/truth.md between their marks.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/truth/truth.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// `groups`, `runs`, `choices`, and `not_expressed` with reasons. Times in seconds, errors relative to what was
/// measured. With every factor, groups have their mean predicted / measured by factor.
Json truth_json(std::span<const TruthRow>);

/// The runs, one a line.
std::string truth_csv(std::span<const TruthRow>);

/// A table of a page, `name` in its marks: `<!-- runs -->` and `<!-- end of runs -->`.
struct TruthTable {
  std::string name, text;
};

/// `runs` by group, `order` of choices, `group NAME` of each group, and `not expressed`.
std::vector<TruthTable> truth_tables(std::span<const TruthRow>);

/// The page with each table between its marks; throws InputError where the page lacks them.
std::string with_truth_tables(std::string page, const std::string& file_name, std::span<const TruthTable>);

}  // namespace plimsoll
