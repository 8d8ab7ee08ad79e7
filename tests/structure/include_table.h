#pragma once
// The table in sim/README.md of who may include whom, and what a source file does against it.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

struct IncludeRow {
  int level = 0;
  std::set<std::string> folders;                                ///< paths; the row's own not among them
  std::map<std::string, std::optional<std::string>> libraries;  ///< third parties; in one file only, or in all
};

/// By the folder's path.
using IncludeTable = std::map<std::string, IncludeRow>;

/// Throws std::runtime_error with the line that is no row of it.
IncludeTable include_table(const std::string& page);

/// The longest of the table's folders that the file lies in; empty where there is none.
std::string row_of(const IncludeTable&, const std::string& file);

/// What one file includes, as the table has it.
struct Includes {
  std::set<std::string> folders;    ///< of the project; an empty one for a path in no row
  std::set<std::string> libraries;  ///< third parties, and "POSIX"; "unknown <...>" for a header of none
};
Includes includes_of(const IncludeTable&, const std::string& text);

/// A sentence for each thing that the file includes and the table does not let it.
std::vector<std::string> complaints(const IncludeTable&, const std::string& file, const Includes&);

}  // namespace plimsoll
