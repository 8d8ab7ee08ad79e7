#pragma once
// Results as a database of SQLite, for who asks them by SQL: a file that is made of a sweep's folder, as results.csv
// is.

#include <span>
#include <string>
#include <vector>

#include "experiments/sweep/sweep_store.h"

namespace plimsoll {

/// Columns of `results` that say which record it is; the fields of tables follow.
inline constexpr const char* record_columns[] = {"point", "case", "build", "key"};

/// The bytes of a database with a table `results`, a row a point with the columns of results.csv, and a table `cases`.
/// The same contents give the same bytes.
std::string results_database(const SweepContents&);

/// One of several folders that are compared.
struct ComparedFolder {
  std::string name;
  const SweepContents& contents;
};

/// Columns of compared results before those of one folder: the folder's name, and of the record's case the names that
/// figures have. A point is one of its folder.
inline constexpr const char* compared_columns[] = {"folder", "model", "machine"};

/// What a record has in them.
std::vector<Json> compared_cells(const ComparedFolder&, const Json& record);

/// The same of several folders: both tables begin with their column `folder`, `results` with all three.
std::string compared_database(std::span<const ComparedFolder>);

}  // namespace plimsoll
