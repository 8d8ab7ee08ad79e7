#pragma once
// Tables of what splits of operators cost and keep, from files: the format of the ASPLOS / EuroSys 2025 contest on
// intra-operator parallelism (iopddl), JSON as it is or compressed by gzip.

#include <filesystem>
#include <string>

#include "strategies/hybrid/split_table.h"

namespace plimsoll {

struct SplitProblem {
  std::string name;  ///< empty: the file gives none
  /// A cost of the file is as many seconds. 10^18 and more is forbidden. Moments are those between which something
  /// begins or ends to be held.
  SplitTable table;
};

SplitProblem parse_split_problem(std::string text, std::string file_name);

/// Throws InputError.
SplitProblem read_split_problem(const std::filesystem::path&);

}  // namespace plimsoll
